import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'

interface ActionButtonProps {
  readonly run: () => Promise<void>
  readonly children: ComponentChildren
  /** For screen readers, if the text is not enough. */
  readonly label?: string
}

/** A button for a request, with the error beside it. */
export function ActionButton({ children, label, run }: ActionButtonProps) {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<string>()
  const start = () => {
    setBusy(true)
    setError(undefined)
    run()
      .catch((failure: unknown) => setError(failure instanceof Error ? failure.message : String(failure)))
      .finally(() => setBusy(false))
  }
  return (
    <>
      <Button onClick={start} isBusy={isBusy} label={label}>
        {children}
      </Button>
      {error !== undefined && (
        <span class="error" role="alert">
          {error}
        </span>
      )}
    </>
  )
}
