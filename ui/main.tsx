/** The web interface: starts the session and shows the frame. */
import { render } from 'preact'
import './core.ts'
import './style/tokens.css'
import './style/base.css'
import './style/shell.css'
import './style/components.css'
import './style/secrets.css'
import './style/access.css'
import './style/hosts.css'
import './style/logs.css'
import { keepFocus } from './app/focus.ts'
import { loginRequested } from './app/login-request.ts'
import { forgetInPage, isSealed, refreshSession, sessionError } from './app/session.ts'
import { Shell } from './app/shell.tsx'
import { showInvisibleCharacters } from './app/visible-text.ts'

const SESSION_MS = 15_000
/** The page of a sealed core waits for the unseal. */
const SEALED_MS = 3000

showInvisibleCharacters()
keepFocus()
// A browser may keep the page in memory when another one is opened, and show it again with its values.
window.addEventListener('pagehide', ({ persisted }) => persisted && forgetInPage())
window.addEventListener('pageshow', ({ persisted }) => persisted && window.location.reload())

const root = document.getElementById('app')
if (root) render(<Shell />, root)

await refreshSession().catch(() => {
  if (sessionError.value?.isForbidden) loginRequested.value = true
})
// Seal, roles and permissions may change while the page is open.
let refreshedAtMs = performance.now()
setInterval(() => {
  const isDue = performance.now() - refreshedAtMs >= (isSealed.value ? 0 : SESSION_MS)
  if (!isDue || document.visibilityState !== 'visible') return
  refreshedAtMs = performance.now()
  void refreshSession().catch(() => undefined)
}, SEALED_MS)
