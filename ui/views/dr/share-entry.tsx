import { useEffect, useRef, useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { deleteOperationToken, OperationTokenAttempt, type ShareProgress } from './operation-token.ts'

interface ShareEntryProps {
  /** Receives the operation token, and must delete it when it is not used. */
  readonly use: (token: string) => void
  readonly cancel: () => void
}

/** Key shares of the primary, one by one. The attempt is canceled when the user leaves. */
export function ShareEntry({ cancel, use }: ShareEntryProps) {
  const [share, setShare] = useState('')
  const [state, setState] = useState<ShareProgress>()
  /** Shares that the server accepted and then discarded. */
  const [discarded, setDiscarded] = useState(0)
  const attempt = useRef<OperationTokenAttempt | undefined>(undefined)
  const isLeft = useRef(false)
  const { error, isBusy, run } = useAction()
  useEffect(
    () => () => {
      isLeft.current = true
      void attempt.current?.cancel()
    },
    [],
  )
  const submit = (event: Event) => {
    event.preventDefault()
    const key = share.trim()
    setShare('')
    run(async () => {
      attempt.current ??= await OperationTokenAttempt.start()
      const accepted = state?.progress ?? 0
      setDiscarded(0)
      const progress = await attempt.current.submit(key).catch(async (failure: unknown) => {
        // A malformed share leaves the others; wrong shares are noticed together, and all of them are discarded.
        const kept = await attempt.current?.kept().catch(() => undefined)
        setState(kept)
        if ((kept?.progress ?? 0) < accepted) setDiscarded(accepted)
        if (!kept) {
          await attempt.current?.cancel()
          attempt.current = undefined
        }
        throw failure
      })
      setState(progress)
      if (progress.token === undefined) return
      attempt.current = undefined
      if (isLeft.current) await deleteOperationToken(progress.token)
      else use(progress.token)
    })
  }
  return (
    <form class="form" onSubmit={submit}>
      <Field
        label={state ? `Key share ${state.progress + 1} of ${state.required}` : 'Key share of the primary'}
        isSecret
        autoComplete="off"
        hint="One share at a time. It is sent to this server and not kept. The shares generate an operation token."
        value={share}
        onInput={setShare}
      />
      {state && (
        <p role="status">
          {state.progress} of {state.required} key shares accepted.
        </p>
      )}
      {error && <ErrorText error={error} />}
      {discarded > 0 && (
        <p class="notice notice-warning">
          The attempt starts again: the {discarded === 1 ? 'share' : `${discarded} shares`} accepted before{' '}
          {discarded === 1 ? 'was' : 'were'} discarded. Enter all shares again.
        </p>
      )}
      <div class="form-actions">
        <Button type="submit" kind="primary" isBusy={isBusy} isDisabled={share.trim() === ''}>
          Submit share
        </Button>
        <Button onClick={cancel}>Cancel</Button>
      </div>
    </form>
  )
}
