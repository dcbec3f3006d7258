/** Whether the login dialog is open: after a request of a view, and when the session has ended. */
import { effect, signal } from '@preact/signals'
import { sessionEnd } from './session.ts'

export const loginRequested = signal(false)

effect(() => {
  if (sessionEnd.value !== undefined) loginRequested.value = true
})

export function requestLogin(): void {
  loginRequested.value = true
}
