import { useState } from 'preact/hooks'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { GeneratedKeyCard } from './generated-key.tsx'
import { RecoveryCodes } from './recovery-codes.tsx'
import { confirmEnrolment, enrol, type GeneratedKey } from './totp.ts'

interface EnrolmentProps {
  readonly method: string
  readonly close: () => void
}

/** Steps: generate, scan and save the recovery codes, confirm with the first code where the method requires it. */
export function Enrolment({ close, method }: EnrolmentProps) {
  const [generated, setGenerated] = useState<GeneratedKey>()
  const [isSaved, setSaved] = useState(false)
  const { error, isBusy, run } = useAction()
  const hasCodes = (generated?.recovery_codes?.length ?? 0) > 0
  const finish = () => {
    showSuccess(`Your second factor “${method}” is active.`)
    close()
  }
  if (!generated) {
    return (
      <Dialog title={`Enroll for ${method}`} close={close}>
        <div key="start" class="form">
          <p>
            The server generates a secret and shows it once, with a QR code for an authenticator application. Make sure
            that no other person sees this screen.
          </p>
          {error && <ErrorText error={error} />}
          <div class="form-actions">
            <Button kind="primary" isBusy={isBusy} onClick={() => run(async () => setGenerated(await enrol(method)))}>
              Generate the secret
            </Button>
            <Button onClick={close}>Cancel</Button>
          </div>
        </div>
      </Dialog>
    )
  }
  const needsCode = generated.confirmed === false
  return (
    <Dialog
      title={`Enroll for ${method}`}
      close={close}
      lost={hasCodes && !isSaved ? 'The recovery codes are not marked as saved, and are not shown again.' : undefined}
    >
      <div key="secret" class="form">
        <p>Scan the QR code with an authenticator application.</p>
        <GeneratedKeyCard generated={generated} />
        {hasCodes && <RecoveryCodes codes={generated.recovery_codes ?? []} isSaved={isSaved} setSaved={setSaved} />}
        {needsCode ? (
          <FirstCode method={method} isBlocked={hasCodes && !isSaved} done={finish} />
        ) : (
          <div class="form-actions">
            <Button kind="primary" isDisabled={hasCodes && !isSaved} onClick={finish}>
              Done
            </Button>
          </div>
        )}
      </div>
    </Dialog>
  )
}

interface FirstCodeProps {
  readonly method: string
  /** True until the recovery codes are saved. */
  readonly isBlocked: boolean
  readonly done: () => void
}

function FirstCode({ done, isBlocked, method }: FirstCodeProps) {
  const [code, setCode] = useState('')
  const { error, isBusy, run } = useAction()
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => {
      try {
        await confirmEnrolment(method, code)
      } finally {
        setCode('')
      }
      done()
    })
  }
  return (
    <form class="form" onSubmit={submit}>
      <Field
        label="First code"
        inputMode="numeric"
        autoComplete="one-time-code"
        hint="The secret takes effect with the first code of your authenticator"
        value={code}
        onInput={setCode}
      />
      {error && <ErrorText error={error} />}
      <div class="form-actions">
        <Button type="submit" kind="primary" isBusy={isBusy} isDisabled={isBlocked || code === ''}>
          Confirm
        </Button>
        {isBlocked && <p class="hint">First save the recovery codes.</p>}
      </div>
    </form>
  )
}
