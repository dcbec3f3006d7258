/** Login by token, userpass (with a second factor) or AppRole. Passwords and codes are kept until the login has ended, and nowhere else. */
import { signal } from '@preact/signals'
import { useState } from 'preact/hooks'
import {
  ApiError,
  type AuthResult,
  type MfaRequirement,
  type RequestOptions,
  secretsPath,
  sendJson,
  type SecretsResponse,
} from '../api/client.ts'
import { Button } from '../components/button.tsx'
import { Dialog } from '../components/dialog.tsx'
import { Field } from '../components/field.tsx'
import { ErrorText } from '../components/states.tsx'
import { hasSecrets, logIn } from './session.ts'

export const loginRequested = signal(false)

type Method = 'token' | 'userpass' | 'approle'
const METHODS: Readonly<Record<Method, string>> = { token: 'Token', userpass: 'Username', approle: 'AppRole' }

/** A login that needs codes before it returns a token. */
interface PendingLogin {
  readonly requirement: MfaRequirement
}

async function anonymousLogin(path: string, body: unknown): Promise<AuthResult> {
  // The old token would be checked, too, and may have expired.
  const options: RequestOptions = { method: 'POST', body, headers: { Authorization: '' } }
  const { auth } = await sendJson<SecretsResponse<unknown>>(secretsPath(path), options)
  if (!auth) throw new ApiError(500, 'the server returned no token')
  return auth
}

function close(): void {
  loginRequested.value = false
}

export function LoginDialog() {
  const [method, setMethod] = useState<Method>('token')
  const [values, setValues] = useState<Readonly<Record<string, string>>>({})
  const [remember, setRemember] = useState(false)
  const [pending, setPending] = useState<PendingLogin>()
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const valueOf = (name: string) => values[name] ?? ''
  const field = (name: string, label: string, options: { readonly secret?: boolean; readonly hint?: string } = {}) => (
    <Field
      label={label}
      hint={options.hint}
      isSecret={options.secret}
      autoComplete={options.secret ? 'current-password' : 'username'}
      value={valueOf(name)}
      onInput={(value) => setValues({ ...values, [name]: value })}
    />
  )

  const finish = async (auth: AuthResult) => {
    if (auth.mfa_requirement) {
      setPending({ requirement: auth.mfa_requirement })
      return
    }
    await logIn(auth.client_token, { remember, isOwn: true })
    close()
  }
  const start = async () => {
    if (method === 'token') {
      await logIn(valueOf('token').trim(), { remember, isOwn: false })
      close()
      return
    }
    const mount = valueOf('mount') === '' ? method : valueOf('mount')
    const username = valueOf('username')
    await finish(
      method === 'userpass'
        ? await anonymousLogin(`auth/${mount}/login/${username}`, { password: valueOf('password') })
        : await anonymousLogin(`auth/${mount}/login`, { role_id: valueOf('role_id'), secret_id: valueOf('secret_id') }),
    )
  }
  const validate = async ({ requirement }: PendingLogin) => {
    const payload = Object.fromEntries(
      Object.values(requirement.mfa_constraints).flatMap(({ any }) =>
        any.slice(0, 1).map(({ id }) => [id, [valueOf(`code:${id}`).trim()]]),
      ),
    )
    await finish(
      await anonymousLogin('sys/mfa/validate', { mfa_request_id: requirement.mfa_request_id, mfa_payload: payload }),
    )
  }
  const submit = (event: Event) => {
    event.preventDefault()
    setError(undefined)
    setBusy(true)
    const work = pending ? validate(pending) : start()
    work
      .catch((failure: unknown) => setError(failure instanceof Error ? failure : new Error(String(failure))))
      .finally(() => setBusy(false))
  }

  return (
    <Dialog title="Log in" close={close}>
      <form onSubmit={submit} class="form">
        {pending ? (
          Object.entries(pending.requirement.mfa_constraints).map(([name, { any }]) =>
            any
              .slice(0, 1)
              .map(({ id }) => field(`code:${id}`, `Code of ${name}`, { hint: 'Six digits of your authenticator' })),
          )
        ) : (
          <>
            {hasSecrets.value && (
              <fieldset class="choices">
                <legend>Method</legend>
                {(Object.keys(METHODS) as Method[]).map((each) => (
                  <label key={each}>
                    <input type="radio" name="method" checked={method === each} onChange={() => setMethod(each)} />
                    {METHODS[each]}
                  </label>
                ))}
              </fieldset>
            )}
            {method === 'token' && field('token', 'Token', { secret: true })}
            {method === 'userpass' && field('username', 'Username')}
            {method === 'userpass' && field('password', 'Password', { secret: true })}
            {method === 'approle' && field('role_id', 'Role ID')}
            {method === 'approle' && field('secret_id', 'Secret ID', { secret: true })}
            {method !== 'token' && field('mount', 'Mount path', { hint: `Default: ${method}` })}
            <label class="check">
              <input type="checkbox" checked={remember} onChange={() => setRemember(!remember)} />
              Keep the token until this tab is closed
            </label>
          </>
        )}
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy}>
            {pending ? 'Verify' : 'Log in'}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

export function requestLogin(): void {
  loginRequested.value = true
}
