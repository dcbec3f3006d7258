/** A secret value: hidden until it is requested, copied without showing it, and hidden and cleared again after a time. */
import { useEffect, useState } from 'preact/hooks'
import { showError, showSuccess } from '../app/toasts.tsx'
import { Button } from './button.tsx'

/** After this time, a shown value is hidden and a copied one is removed from the clipboard. */
export const SECRET_SHOWN_MS = 30_000
const DOTS = '••••••••'

let clearing: ReturnType<typeof setTimeout> | undefined

/** Copies a secret, and clears the clipboard later. A browser refuses to clear it while the page is in the background: then at its return. */
export async function copySecret(value: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(value)
  } catch {
    showError('The browser did not allow copying. Copying requires HTTPS or localhost.')
    return
  }
  showSuccess(`Copied. The clipboard is cleared in ${SECRET_SHOWN_MS / 1000} s.`)
  clearTimeout(clearing)
  clearing = setTimeout(clearClipboard, SECRET_SHOWN_MS)
}

function clearClipboard(): void {
  navigator.clipboard.writeText('').catch(() => window.addEventListener('focus', clearClipboard, { once: true }))
}

interface SecretValueProps {
  /** What it is, for screen readers. */
  readonly name: string
  readonly value: string
}

export function SecretValue({ name, value }: SecretValueProps) {
  const [isShown, setShown] = useState(false)
  useEffect(() => {
    if (!isShown) return undefined
    const timer = setTimeout(() => setShown(false), SECRET_SHOWN_MS)
    return () => clearTimeout(timer)
  }, [isShown])
  return (
    <span class="secret">
      <code class="secret-text">{isShown ? value : DOTS}</code>
      <Button label={`${isShown ? 'Hide' : 'Show'} ${name}`} onClick={() => setShown(!isShown)}>
        {isShown ? 'Hide' : 'Show'}
      </Button>
      <Button label={`Copy ${name}`} onClick={() => void copySecret(value)}>
        Copy
      </Button>
    </span>
  )
}
