import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { isRefusal } from '../../api/client.ts'
import { requestLogin } from '../../app/login-request.ts'
import { useResource } from '../../app/resource.ts'
import { token, tokenInfo } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { Time } from '../../components/format.tsx'
import { Empty } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { CoreFailure, CoreLoaded, Facts } from '../../components/core-parts.tsx'
import { Enrolment } from './enrolment.tsx'
import { generatePath, listMethods, type MfaMethodInfo, readEnrolment } from './totp.ts'
import { TotpTabs } from './totp-tabs.tsx'

/** The TOTP methods, and the secret of the caller for each. */
export function SecondFactor() {
  const resource = useResource(listMethods, [])
  const isForbidden = token.value !== undefined && isRefusal(resource.error)
  const hasEntity = (tokenInfo.value?.entity_id ?? '') !== ''
  return (
    <View title="TOTP">
      <TotpTabs current="mfa" />
      {tokenInfo.value !== undefined && !hasEntity && <NoEntity />}
      {isForbidden ? (
        <MethodByName />
      ) : (
        <CoreLoaded resource={resource}>
          {(methods) =>
            methods.length === 0 ? (
              <Empty title="No TOTP methods">
                <p>
                  An administrator creates one with: <code>outpost mfa totp write phone issuer=Example</code>
                </p>
              </Empty>
            ) : (
              <>
                {methods.map((method) => (
                  <MethodCard key={method.name} name={method.name} method={method} />
                ))}
              </>
            )
          }
        </CoreLoaded>
      )}
    </View>
  )
}

function NoEntity() {
  return (
    <div class="notice">
      <p>Your token has no entity, so it cannot have a second factor. Log in as a user.</p>
      <Button onClick={requestLogin}>Use another token</Button>
    </div>
  )
}

/** For a token that may not list the methods: the user knows the name from an administrator. */
function MethodByName() {
  const [typed, setTyped] = useState('')
  const [name, setName] = useState('')
  const submit = (event: Event) => {
    event.preventDefault()
    setName(typed.trim())
  }
  return (
    <>
      <section class="card">
        <p>Your token may not list the methods. Enter the name of the method that you use.</p>
        <form class="look-up" onSubmit={submit}>
          <Field label="Method" placeholder="phone" value={typed} onInput={setTyped} />
          <Button type="submit">Open</Button>
        </form>
      </section>
      {name !== '' && <MethodCard key={name} name={name} />}
    </>
  )
}

interface MethodCardProps {
  readonly name: string
  readonly method?: MfaMethodInfo
}

function MethodCard({ method, name }: MethodCardProps) {
  const path = generatePath(name)
  const may = useCapabilities([path])
  const [isEnrolling, setEnrolling] = useState(false)
  const entityId = tokenInfo.value?.entity_id ?? ''
  const state = useResource(
    (signal) => (entityId === '' ? Promise.resolve(undefined) : readEnrolment(name, entityId, signal)),
    [entityId, name],
  )
  const isEnrolled = state.data?.confirmed === true
  const mayEnrol = entityId !== '' && !isEnrolled && may(path, 'read')
  return (
    <section class="card" aria-label={`Method ${name}`}>
      <h2>{name}</h2>
      {state.error && <CoreFailure error={state.error} retry={state.reload} />}
      <Facts
        rows={[
          method && ['Issuer', method.issuer],
          method && ['Codes', `${method.digits} digits, ${method.period} s, ${method.algorithm}`],
          method && method.recovery_codes > 0 && ['Recovery codes', method.recovery_codes],
          state.data && ['Your secret', isEnrolled ? 'active' : 'waits for its first code'],
          state.data && ['Generated', <Time key="generated" at={state.data.creation_time} />],
          state.data && ['Last used', <Time key="used" at={state.data.last_used_time ?? ''} />],
          state.data && state.data.recovery_codes_left > 0 && ['Recovery codes left', state.data.recovery_codes_left],
        ]}
      />
      {state.data?.locked && (
        <p class="notice notice-warning">
          Too many wrong codes: this method is locked for some minutes. An administrator can unlock it.
        </p>
      )}
      {mayEnrol && (
        <div class="form-actions">
          <Button kind="primary" onClick={() => setEnrolling(true)}>
            Enroll
          </Button>
        </div>
      )}
      {entityId !== '' && may.isKnown && !mayEnrol && !isEnrolled && (
        <p class="hint">Enrolling requires “read” on {path}. An administrator can generate the secret for you.</p>
      )}
      {isEnrolling && (
        <Enrolment
          method={name}
          close={() => {
            setEnrolling(false)
            state.reload()
          }}
        />
      )}
    </section>
  )
}
