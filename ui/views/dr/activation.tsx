import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { secrets } from '../../api/client.ts'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { SecretValue } from '../../components/secret-value.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { DR } from './dr-status.ts'

const TOKEN = `${DR}/primary/secondary-token`

interface Issued {
  readonly id: string
  readonly token: string
  readonly warnings: readonly string[]
}

/** Activation tokens for secondaries, such as a demoted primary. A token is shown once. */
export function Activation() {
  const may = useCapabilities([TOKEN])
  const [id, setId] = useState('')
  const [publicKey, setPublicKey] = useState('')
  const [issued, setIssued] = useState<Issued>()
  const { error, isBusy, run } = useAction()
  if (!may(TOKEN, 'update') || !may(TOKEN, 'sudo')) return null
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => {
      const body = { id: id.trim(), secondary_public_key: publicKey.trim() }
      const answer = await secrets<{ token?: string } | null>(TOKEN, { method: 'POST', body })
      const token = answer.data?.token ?? answer.wrap_info?.token ?? ''
      if (token === '') throw new Error('The server returned no activation token.')
      setIssued({ id: id.trim(), token, warnings: answer.warnings ?? [] })
      setId('')
      setPublicKey('')
    })
  }
  return (
    <section class="card" aria-label="Add a secondary">
      <h2>Add a secondary</h2>
      {issued ? (
        <div class="form">
          <p>Activation token for “{issued.id}”, valid once and for 30 minutes:</p>
          <SecretValue name="the activation token" value={issued.token} />
          {issued.warnings.map((warning) => (
            <p key={warning} class="notice notice-warning">
              {warning}
            </p>
          ))}
          <p>
            On the new server: <code>outpost operator dr join</code>. A demoted primary joins on its own page.
          </p>
          <div class="form-actions">
            <Button onClick={() => setIssued(undefined)}>Done</Button>
          </div>
        </div>
      ) : (
        <form class="form" onSubmit={submit}>
          <Field label="ID of the secondary" autoComplete="off" placeholder="berlin" value={id} onInput={setId} />
          <Field
            label="Public key"
            hint="From the page of a demoted primary. Empty: the new server must reach the API of this one"
            autoComplete="off"
            value={publicKey}
            onInput={setPublicKey}
          />
          {error && <ErrorText error={error} />}
          <div class="form-actions">
            <Button type="submit" isBusy={isBusy} isDisabled={id.trim() === ''}>
              Create activation token
            </Button>
          </div>
        </form>
      )}
    </section>
  )
}
