/** Short messages about the result of an action, announced to screen readers. */
import { signal } from '@preact/signals'

interface Toast {
  readonly id: number
  readonly text: string
  readonly kind: 'success' | 'error'
}

const SHOWN_MS = 5000
const toasts = signal<readonly Toast[]>([])
let nextId = 1

function show(kind: Toast['kind'], text: string): void {
  const toast = { id: nextId++, text, kind }
  toasts.value = [...toasts.value, toast]
  setTimeout(() => {
    toasts.value = toasts.value.filter(({ id }) => id !== toast.id)
  }, SHOWN_MS)
}

export function showSuccess(text: string): void {
  show('success', text)
}

export function showError(error: unknown): void {
  show('error', error instanceof Error ? error.message : String(error))
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, kind, text }) => (
        <p key={id} class={`toast toast-${kind}`}>
          {text}
        </p>
      ))}
    </div>
  )
}
