import { useState } from 'preact/hooks'
import { secrets } from '../../api/client.ts'
import { showError, showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { DR, type DrStatus } from './dr-status.ts'
import { handoverText } from './handover.ts'
import { deleteOperationToken } from './operation-token.ts'
import { ShareEntry } from './share-entry.tsx'

interface RejoinProps {
  readonly status: DrStatus
  readonly reload: () => void
}

/** The second half of a planned switch, or the step after a failover, at the old primary: it joins the new one. Its data is not deleted. */
export function Rejoin({ reload, status }: RejoinProps) {
  const [publicKey, setPublicKey] = useState<string>()
  const [activation, setActivation] = useState('')
  const [isEntering, setEntering] = useState(false)
  const [failure, setFailure] = useState<Error>()
  const { error, isBusy, run } = useAction()
  const generate = () =>
    run(async () => {
      const path = `${DR}/secondary/generate-public-key`
      setPublicKey(
        (await secrets<{ secondary_public_key: string }>(path, { method: 'POST' })).data.secondary_public_key,
      )
    })
  const join = async (token: string) => {
    try {
      const body = { token: activation.trim(), dr_operation_token: token }
      await secrets(`${DR}/secondary/update-primary`, { method: 'POST', body })
      setActivation('')
      showSuccess('Joined the new primary.')
      reload()
    } catch (problem) {
      setFailure(problem instanceof Error ? problem : new Error(String(problem)))
    } finally {
      setEntering(false)
      // It has no other use.
      await deleteOperationToken(token)
    }
  }
  return (
    <section class="card" aria-label="Join the new primary">
      <h2>Join the new primary</h2>
      <p>
        1. In a planned switch: enter the state of this server on the page of the secondary, and promote it there. After
        a failover, the new primary does not need it:
      </p>
      <CopiedText label="State of the demoted primary" text={handoverText(status)} />
      <p>2. Public key of this server. Enter it on the page of the new primary, under “Add a secondary”:</p>
      {publicKey === undefined ? (
        <div class="form-actions">
          <Button isBusy={isBusy} onClick={generate}>
            Generate the public key
          </Button>
        </div>
      ) : (
        <CopiedText label="Public key" text={publicKey} />
      )}
      {error && <ErrorText error={error} />}
      <Field
        label="3. Activation token of the new primary"
        isSecret
        autoComplete="off"
        value={activation}
        onInput={setActivation}
      />
      {failure && <ErrorText error={failure} />}
      {isEntering ? (
        <ShareEntry cancel={() => setEntering(false)} use={(token) => void join(token)} />
      ) : (
        <div class="form-actions">
          <Button
            kind="primary"
            isDisabled={activation.trim() === ''}
            onClick={() => {
              setFailure(undefined)
              setEntering(true)
            }}
          >
            Join with key shares
          </Button>
        </div>
      )}
    </section>
  )
}

function CopiedText({ label, text }: { readonly label: string; readonly text: string }) {
  const copy = () => {
    navigator.clipboard.writeText(text).then(
      () => showSuccess('Copied.'),
      () => showError('The browser did not allow copying: select the text instead.'),
    )
  }
  return (
    <div class="copied-text">
      <pre class="credentials" tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <Button label={`Copy: ${label}`} onClick={copy}>
        Copy
      </Button>
    </div>
  )
}
