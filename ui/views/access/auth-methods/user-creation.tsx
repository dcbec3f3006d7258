import { useState } from 'preact/hooks'
import { listSecrets } from '../../../api/client.ts'
import { useResource } from '../../../app/resource.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { Dialog } from '../../../components/dialog.tsx'
import { Field } from '../../../components/field.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { createUser, memberNameProblem } from './auth-mounts.ts'
import { useAction } from '../../../components/core-parts.tsx'
import { PolicyField } from '../policy-field.tsx'
import { listOf } from '../../../app/path-segments.ts'

interface UserCreationProps {
  readonly mount: string
  readonly existing: readonly string[]
  readonly close: () => void
  readonly created: () => void
}

export function UserCreation({ close, created, existing, mount }: UserCreationProps) {
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const [repeated, setRepeated] = useState('')
  const [policies, setPolicies] = useState('')
  const [ttl, setTtl] = useState('')
  const known = useResource((signal) => listSecrets('sys/policies/acl', { signal }), [])
  const { error, isBusy, run } = useAction()
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => {
      const problem = memberNameProblem('user', name, existing)
      if (problem !== undefined) throw new Error(problem)
      if (password === '') throw new Error('Enter a password.')
      if (password !== repeated) throw new Error('The two passwords differ.')
      await createUser(mount, { name, password, policies: listOf(policies), ttl })
      showSuccess(`Created the user ${name}.`)
      close()
      created()
    })
  }
  return (
    <Dialog title="Create a user" close={close}>
      <form class="form" onSubmit={submit}>
        <Field label="Name" autoComplete="off" value={name} onInput={setName} />
        <Field label="Password" isSecret autoComplete="new-password" value={password} onInput={setPassword} />
        <Field
          label="Repeat the password"
          isSecret
          autoComplete="new-password"
          value={repeated}
          onInput={setRepeated}
        />
        <PolicyField value={policies} onInput={setPolicies} known={known.data} />
        <Field label="Token TTL" hint="For example 8h. Empty: the default of the mount" value={ttl} onInput={setTtl} />
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy}>
            Create user
          </Button>
          <Button onClick={close}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  )
}
