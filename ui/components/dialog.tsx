import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { visibleText } from '../app/invisible-characters.ts'
import { InDialog } from '../app/keys.ts'
import { Button } from './button.tsx'
import { Field } from './field.tsx'
import { ErrorText } from './states.tsx'

interface DialogProps {
  readonly title: string
  readonly children: ComponentChildren
  readonly close: () => void
  readonly class?: string
  /** What is lost with the dialog, because it is shown once. Escape and × then ask before they close the dialog. */
  readonly lost?: string | undefined
}

/** A modal dialog: its first field has the focus, Escape closes it, and the focus returns to where it was. */
export function Dialog({ children, class: className = '', close, lost, title }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  const [isWarned, setWarned] = useState(false)
  const isLeft = useRef(false)
  const id = useId()
  // Before the browser moves the focus to a field with autofocus: the dialog returns the focus to where it was.
  useLayoutEffect(() => {
    const dialog = element.current
    dialog?.showModal()
    // The browser gives the focus to the first element otherwise, which is the button that closes the dialog.
    if (dialog?.querySelector('[autofocus]') === null) focusFirstField(dialog)
    return () => {
      isLeft.current = true
      dialog?.close()
    }
  }, [])
  const leave = () => {
    if (lost === undefined || isWarned) return close()
    setWarned(true)
    element.current?.scrollTo(0, 0)
  }
  const onCancel = (event: Event) => {
    event.preventDefault()
    leave()
  }
  // A browser does not ask the page again before a second Escape.
  const onClose = () => isLeft.current || close()
  return (
    <dialog ref={element} class={`dialog ${className}`} aria-labelledby={id} onCancel={onCancel} onClose={onClose}>
      <header class="dialog-head">
        <h2 id={id}>{title}</h2>
        <Button label="Close" onClick={leave}>
          ×
        </Button>
      </header>
      {isWarned && lost !== undefined && (
        <p class="notice notice-warning" role="alert">
          {lost} Close once more to leave without it.
        </p>
      )}
      <div class="dialog-body">
        <InDialog.Provider value>{children}</InDialog.Provider>
      </div>
    </dialog>
  )
}

function focusFirstField(dialog: HTMLDialogElement): void {
  const field = dialog.querySelector('.dialog-body :is(input, textarea, select):enabled')
  if (field instanceof HTMLElement) field.focus()
}

interface ConfirmProps {
  readonly title: string
  /** What will happen, with names and counts. */
  readonly children: ComponentChildren
  readonly action: string
  /** A text that the user must type, such as the name of what is destroyed. */
  readonly typed?: string
  readonly run: () => Promise<void>
  readonly close: () => void
}

/** Asks before an action that cannot be undone, runs it, and stays open with the error if it fails. */
export function Confirm({ action, children, close, run, title, typed }: ConfirmProps) {
  const [text, setText] = useState('')
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const submit = (event: Event) => {
    event.preventDefault()
    setBusy(true)
    setError(undefined)
    run().then(close, (failure: unknown) => {
      setError(failure instanceof Error ? failure : new Error(String(failure)))
      setBusy(false)
    })
  }
  return (
    <Dialog title={title} close={close}>
      <form class="form" onSubmit={submit}>
        <div>{children}</div>
        {typed !== undefined && (
          <Field label={`Type "${typed}" to confirm`} value={text} onInput={setText} autoComplete="off" isFirst />
        )}
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button onClick={close}>Cancel</Button>
          <Button
            type="submit"
            kind="danger"
            isBusy={isBusy}
            isDisabled={typed !== undefined && text !== visibleText(typed)}
          >
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
