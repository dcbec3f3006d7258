import { showError, showSuccess } from '../../../app/toasts.tsx'

/** Copies a text that is not secret. */
export async function copyText(text: string, done: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text)
    showSuccess(done)
  } catch {
    // There is no clipboard on an origin that is not secure.
    showError('The browser did not allow copying. Copying requires HTTPS or localhost.')
  }
}
