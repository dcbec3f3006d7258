import { useState } from 'preact/hooks'
import { sendJson } from '../../api/client.ts'
import type { SealStatus } from '../../app/session.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'

interface UnsealFormProps {
  readonly status: SealStatus
  readonly changed: () => Promise<void>
}

function send(body: object): Promise<SealStatus> {
  return sendJson<SealStatus>('/v1/sys/unseal', { method: 'POST', body })
}

/** The field is empty again as soon as its share was sent, whatever the result is. */
export function UnsealForm({ changed, status: { progress, t } }: UnsealFormProps) {
  const [share, setShare] = useState('')
  const { error, isBusy, run } = useAction()
  const submit = (event: Event) => {
    event.preventDefault()
    const key = share.trim()
    setShare('')
    run(async () => {
      const { sealed } = await send({ key })
      if (!sealed) showSuccess('Unsealed the secrets core.')
      await changed()
    })
  }
  const reset = () =>
    run(async () => {
      await send({ reset: true })
      await changed()
    })
  return (
    <section class="card">
      <h2>Unseal</h2>
      <p>
        {progress} of {t} key shares <progress max={t} value={progress} aria-label="Progress" />
      </p>
      <form class="form" onSubmit={submit}>
        <Field
          label="Key share"
          isSecret
          autoComplete="off"
          hint="One share at a time. It is sent to the server and not kept. A DR secondary uses the shares of its primary."
          value={share}
          onInput={setShare}
        />
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy} isDisabled={share.trim() === ''}>
            Submit share
          </Button>
          {progress > 0 && <Button onClick={reset}>Start again</Button>}
        </div>
      </form>
    </section>
  )
}
