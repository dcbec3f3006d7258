import { useState } from 'preact/hooks'
import { listSecrets } from '../../../api/client.ts'
import { listOf } from '../../../app/path-segments.ts'
import { useResource } from '../../../app/resource.ts'
import { showSuccess } from '../../../app/toasts.tsx'
import { Button } from '../../../components/button.tsx'
import { useAction } from '../../../components/core-parts.tsx'
import { Dialog } from '../../../components/dialog.tsx'
import { Field } from '../../../components/field.tsx'
import { ErrorText } from '../../../components/states.tsx'
import { PolicyField } from '../policy-field.tsx'
import { createRole, memberNameProblem, type RoleDraft } from './auth-mounts.ts'

const NEW: Omit<RoleDraft, 'policies'> = {
  name: '',
  ttl: '',
  maxTtl: '',
  secretIdTtl: '',
  secretIdUses: '',
}

interface RoleCreationProps {
  readonly mount: string
  readonly existing: readonly string[]
  readonly close: () => void
  readonly created: () => void
}

export function RoleCreation({ close, created, existing, mount }: RoleCreationProps) {
  const [draft, setDraft] = useState(NEW)
  const [policies, setPolicies] = useState('')
  const known = useResource((signal) => listSecrets('sys/policies/acl', { signal }), [])
  const { error, isBusy, run } = useAction()
  const change = (changes: Partial<typeof NEW>) => setDraft((before) => ({ ...before, ...changes }))
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => {
      const problem = memberNameProblem('role', draft.name, existing)
      if (problem !== undefined) throw new Error(problem)
      await createRole(mount, { ...draft, policies: listOf(policies) })
      showSuccess(`Created the role ${draft.name}.`)
      close()
      created()
    })
  }
  return (
    <Dialog title="Create a role" close={close}>
      <form class="form" onSubmit={submit}>
        <Field label="Name" autoComplete="off" value={draft.name} onInput={(name) => change({ name })} />
        <PolicyField value={policies} onInput={setPolicies} known={known.data} />
        <Field
          label="Token TTL"
          hint="For example 1h. Empty: the default of the mount"
          value={draft.ttl}
          onInput={(ttl) => change({ ttl })}
        />
        <Field
          label="Maximum TTL of tokens"
          hint="Renewals end at this age. Empty: that of the mount"
          value={draft.maxTtl}
          onInput={(maxTtl) => change({ maxTtl })}
        />
        <Field
          label="TTL of a secret ID"
          hint="For example 24h. Empty: no expiry"
          value={draft.secretIdTtl}
          onInput={(secretIdTtl) => change({ secretIdTtl })}
        />
        <Field
          label="Uses of a secret ID"
          inputMode="numeric"
          hint="Leave empty for no limit"
          value={draft.secretIdUses}
          onInput={(secretIdUses) => change({ secretIdUses })}
        />
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy}>
            Create role
          </Button>
          <Button onClick={close}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  )
}
