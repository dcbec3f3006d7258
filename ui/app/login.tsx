/** Login by token, userpass (with a second factor) or AppRole. Passwords and codes are kept until the login has ended, and nowhere else. */
import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import {
  ApiError,
  type AuthResult,
  type MfaMethod,
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
import { loginRequested } from './login-request.ts'
import { hasSecrets, logIn, sessionEnd } from './session.ts'

type Method = 'token' | 'userpass' | 'approle'
const METHODS: Readonly<Record<Method, string>> = { token: 'Token', userpass: 'Username', approle: 'AppRole' }

type Values = Readonly<Record<string, string>>

async function anonymousLogin(path: string, body: unknown): Promise<AuthResult> {
  // The old token would be checked, too, and may have expired.
  const options: RequestOptions = { method: 'POST', body, headers: { Authorization: '' } }
  const { auth } = await sendJson<SecretsResponse<unknown>>(secretsPath(path), options)
  if (!auth) throw new ApiError(500, 'the server returned no token')
  return auth
}

function close(): void {
  loginRequested.value = false
  sessionEnd.value = undefined
}

function loginOf(method: 'userpass' | 'approle', { mount = '', ...values }: Values): Promise<AuthResult> {
  const at = `auth/${mount === '' ? method : mount.replaceAll(/^\/+|\/+$/g, '')}/login`
  if (method === 'approle') {
    return anonymousLogin(at, { role_id: values['role_id'] ?? '', secret_id: values['secret_id'] ?? '' })
  }
  const { username = '', password = '' } = values
  if (username === '') return Promise.reject(new ApiError(400, 'Enter a username.'))
  return anonymousLogin(`${at}/${username}`, { password })
}

/** Says what to do, where the text of the server does not. */
function loginError(failure: unknown): Error {
  if (!(failure instanceof ApiError)) return failure instanceof Error ? failure : new Error(String(failure))
  if (failure.message.includes('is wrong or was already used')) {
    return new Error('The code is wrong or was already used. Each code is valid once: wait for the next one.')
  }
  if (failure.message.includes('invalid request ID')) {
    return new Error('The login attempt has expired. Go back and log in again.')
  }
  return failure
}

export function LoginDialog() {
  const [remember, setRemember] = useState(false)
  const [requirement, setRequirement] = useState<MfaRequirement>()
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const [method, setMethod] = useState<Method>('token')
  const [values, setValues] = useState<Values>({})

  const finish = async (auth: AuthResult) => {
    if (auth.mfa_requirement) {
      setRequirement(auth.mfa_requirement)
      // What is needed to return to the form. The password is entered again.
      setValues(({ mount = '', username = '' }) => ({ mount, username }))
      return
    }
    await logIn(auth.client_token, { remember, isOwn: true })
    close()
  }
  const start = async () => {
    if (method !== 'token') return finish(await loginOf(method, values))
    await logIn((values['token'] ?? '').trim(), { remember, isOwn: false })
    return close()
  }
  const run = (work: () => Promise<void>) => {
    setError(undefined)
    setBusy(true)
    work()
      .catch((failure: unknown) => setError(loginError(failure)))
      .finally(() => setBusy(false))
  }
  const choose = (next: Method) => {
    setMethod(next)
    setError(undefined)
  }
  const back = () => {
    setRequirement(undefined)
    setError(undefined)
  }
  const failure = error && <ErrorText error={error} />

  return (
    <Dialog title="Log in" close={close}>
      {requirement ? (
        <CodeForm
          requirement={requirement}
          isBusy={isBusy}
          back={back}
          submit={(body) => run(() => verify(body))}
          refuse={setError}
        >
          {failure}
        </CodeForm>
      ) : (
        <CredentialsForm
          isBusy={isBusy}
          method={method}
          choose={choose}
          values={values}
          setValue={(name, value) => setValues((before) => ({ ...before, [name]: value }))}
          submit={() => run(start)}
        >
          <label class="check">
            <input type="checkbox" checked={remember} onChange={() => setRemember(!remember)} />
            Keep the token until this tab is closed
          </label>
          {failure}
        </CredentialsForm>
      )}
    </Dialog>
  )

  async function verify(payload: Readonly<Record<string, readonly string[]>>): Promise<void> {
    const body = { mfa_request_id: requirement?.mfa_request_id, mfa_payload: payload }
    await finish(await anonymousLogin('sys/mfa/validate', body))
  }
}

interface FormProps {
  readonly isBusy: boolean
  readonly children: ComponentChildren
}

interface CredentialsFormProps extends FormProps {
  readonly method: Method
  readonly choose: (method: Method) => void
  readonly values: Values
  readonly setValue: (name: string, value: string) => void
  readonly submit: () => void
}

function CredentialsForm({ children, choose, isBusy, method, setValue, submit, values }: CredentialsFormProps) {
  const field = (
    name: string,
    label: string,
    options: { isSecret?: boolean; hint?: string; isFirst?: boolean } = {},
  ) => (
    <Field
      key={name}
      {...options}
      label={label}
      autoComplete={options.isSecret ? 'current-password' : 'username'}
      value={values[name] ?? ''}
      onInput={(value) => setValue(name, value)}
    />
  )
  const onSubmit = (event: Event) => {
    event.preventDefault()
    submit()
  }
  const isNamed = (values['username'] ?? '') !== ''
  return (
    <form onSubmit={onSubmit} class="form">
      {sessionEnd.value !== undefined && <p role="status">{sessionEnd.value}</p>}
      {hasSecrets.value && (
        <fieldset class="choices">
          <legend>Method</legend>
          {(Object.keys(METHODS) as Method[]).map((each) => (
            <label key={each}>
              <input type="radio" name="method" checked={method === each} onChange={() => choose(each)} />
              {METHODS[each]}
            </label>
          ))}
        </fieldset>
      )}
      {method === 'token' && field('token', 'Token', { isSecret: true, isFirst: true })}
      {method === 'userpass' && field('username', 'Username', { isFirst: !isNamed })}
      {method === 'userpass' && field('password', 'Password', { isSecret: true, isFirst: isNamed })}
      {method === 'approle' && field('role_id', 'Role ID', { isFirst: true })}
      {method === 'approle' && field('secret_id', 'Secret ID', { isSecret: true })}
      {method !== 'token' && field('mount', 'Mount path', { hint: `Default: ${method}` })}
      {children}
      <div class="form-actions">
        <Button type="submit" kind="primary" isBusy={isBusy}>
          Log in
        </Button>
      </div>
    </form>
  )
}

interface CodeFormProps extends FormProps {
  readonly requirement: MfaRequirement
  readonly back: () => void
  readonly submit: (payload: Readonly<Record<string, readonly string[]>>) => void
  /** Shows what is missing. */
  readonly refuse: (error: Error) => void
}

/** One code for each enforcement; the user selects the method if an enforcement accepts several. */
function CodeForm({ back, children, isBusy, refuse, requirement, submit }: CodeFormProps) {
  const constraints = Object.entries(requirement.mfa_constraints)
  const [codes, setCodes] = useState<Values>({})
  const [chosen, setChosen] = useState<Values>({})
  const methodOf = (name: string, any: readonly MfaMethod[]) => any.find(({ id }) => id === chosen[name]) ?? any[0]
  const onSubmit = (event: Event & { readonly currentTarget: HTMLElement }) => {
    event.preventDefault()
    // A wrong code is typed again there.
    event.currentTarget.querySelector<HTMLElement>('[autofocus]')?.focus()
    const pairs = constraints.flatMap(([name, { any }]) => {
      const method = methodOf(name, any)
      return method ? [[method.id, [(codes[name] ?? '').replaceAll(/\s/g, '')]] as const] : []
    })
    if (pairs.some(([, [code]]) => code === '')) {
      refuse(new Error('Enter a code.'))
      return
    }
    submit(Object.fromEntries(pairs))
    setCodes({})
  }
  return (
    <form onSubmit={onSubmit} class="form">
      <p>This login requires a second factor.</p>
      {constraints.map(([name, { any }], index) => (
        <CodeField
          key={name}
          methods={any}
          method={methodOf(name, any)}
          choose={(id) => setChosen({ ...chosen, [name]: id })}
          code={codes[name] ?? ''}
          setCode={(code) => setCodes({ ...codes, [name]: code })}
          isFirst={index === 0}
        />
      ))}
      {children}
      <div class="form-actions">
        <Button type="submit" kind="primary" isBusy={isBusy}>
          Verify
        </Button>
        <Button onClick={back}>Back</Button>
      </div>
    </form>
  )
}

interface CodeFieldProps {
  readonly methods: readonly MfaMethod[]
  readonly method: MfaMethod | undefined
  readonly choose: (id: string) => void
  readonly code: string
  readonly setCode: (code: string) => void
  readonly isFirst: boolean
}

function nameOf({ id, name }: MfaMethod): string {
  return name === undefined || name === '' ? id : name
}

function CodeField({ choose, code, isFirst, method, methods, setCode }: CodeFieldProps) {
  return (
    <>
      {methods.length > 1 && (
        <fieldset class="choices">
          <legend>Second factor</legend>
          {methods.map((each) => (
            <label key={each.id}>
              <input type="radio" name="factor" checked={each.id === method?.id} onChange={() => choose(each.id)} />
              {nameOf(each)}
            </label>
          ))}
        </fieldset>
      )}
      <Field
        label={`Code of ${method ? nameOf(method) : 'the second factor'}`}
        hint="The code that your authenticator shows now, or a recovery code"
        autoComplete="one-time-code"
        isFirst={isFirst}
        value={code}
        onInput={setCode}
      />
    </>
  )
}
