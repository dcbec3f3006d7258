/** Asks before a view with unsaved changes is left, and before its tab is closed. */
import { useEffect, useState } from 'preact/hooks'
import { Button } from '../components/button.tsx'
import { Dialog } from '../components/dialog.tsx'
import { setLeaveGuard } from './location.ts'

interface UnsavedChangesProps {
  readonly hasChanges: boolean
  /** What would be lost, such as "the changes of app/db". */
  readonly what: string
}

export function UnsavedChanges({ hasChanges, what }: UnsavedChangesProps) {
  const [proceed, setProceed] = useState<{ readonly run: () => void }>()
  useEffect(() => {
    if (!hasChanges) return undefined
    setLeaveGuard((run) => {
      setProceed({ run })
      return false
    })
    const onClose = (event: BeforeUnloadEvent) => event.preventDefault()
    window.addEventListener('beforeunload', onClose)
    return () => {
      setLeaveGuard(undefined)
      window.removeEventListener('beforeunload', onClose)
    }
  }, [hasChanges])
  if (!proceed) return null
  const stay = () => setProceed(undefined)
  const leave = () => {
    setLeaveGuard(undefined)
    stay()
    proceed.run()
  }
  return (
    <Dialog title="Discard the changes?" close={stay}>
      <p>{what} are not saved. They are lost when you leave.</p>
      <div class="form-actions dialog-actions">
        <Button onClick={stay}>Stay</Button>
        <Button kind="danger" onClick={leave}>
          Discard and leave
        </Button>
      </div>
    </Dialog>
  )
}
