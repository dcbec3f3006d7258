import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { useKeys } from '../../app/keys.ts'
import { navigate } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { CoreLoaded, Facts, useAction } from '../../components/core-parts.tsx'
import { CodeDisplay } from './code-display.tsx'
import { deleteKey, type KeyRow, readKey, verifyCode } from './totp.ts'

const DEFAULT_PERIOD_SECONDS = 30

export function KeyView({ mount, name }: KeyRow) {
  const keyPath = `${mount}/keys/${name}`
  const codePath = `${mount}/code/${name}`
  const may = useCapabilities([keyPath, codePath])
  const resource = useResource((signal) => readKey(mount, name, signal), [mount, name])
  const [isDeleting, setDeleting] = useState(false)
  const mayDelete = resource.data !== undefined && may(keyPath, 'delete')
  useKeys('Key', [
    { keys: 'x', label: 'Delete the key', run: () => mayDelete && setDeleting(true) },
    { keys: 'u', label: 'Back to the list', run: () => navigate('/totp') },
  ])
  const remove = async () => {
    await deleteKey(mount, name)
    showSuccess(`Deleted the key ${name}.`)
    navigate('/totp')
  }
  const period = resource.data?.period ?? DEFAULT_PERIOD_SECONDS
  return (
    <View
      title={name}
      parents={[{ title: 'TOTP', to: '/totp' }]}
      actions={
        mayDelete && (
          <Button kind="danger" onClick={() => setDeleting(true)}>
            Delete
          </Button>
        )
      }
    >
      <CoreLoaded resource={resource} hint={`The properties of the key require “read” on ${keyPath}.`}>
        {({ account_name, algorithm, digits, issuer }) => (
          <section class="card">
            <Facts
              rows={[
                ['Mount', mount],
                issuer !== '' && ['Issuer', issuer],
                account_name !== '' && ['Account', account_name],
                ['Codes', `${digits} digits, ${period} s, ${algorithm}`],
              ]}
            />
          </section>
        )}
      </CoreLoaded>
      {may(codePath, 'read') && <CodeDisplay mount={mount} name={name} periodSeconds={period} />}
      {may(codePath, 'update') && <Verification mount={mount} name={name} />}
      {isDeleting && (
        <Confirm title="Delete the key" action="Delete" typed={name} run={remove} close={() => setDeleting(false)}>
          <p>The key is deleted permanently. Its codes can neither be generated nor verified afterwards.</p>
        </Confirm>
      )}
    </View>
  )
}

function Verification({ mount, name }: KeyRow) {
  const [code, setCode] = useState('')
  const [isValid, setValid] = useState<boolean>()
  const { error, isBusy, run } = useAction()
  const submit = (event: Event) => {
    event.preventDefault()
    setValid(undefined)
    run(async () => {
      setValid(await verifyCode(mount, name, code.replaceAll(/\s/g, '')))
      setCode('')
    })
  }
  return (
    <section class="card">
      <h2>Verify a code</h2>
      <form class="form" onSubmit={submit}>
        <Field
          label="Code"
          inputMode="numeric"
          autoComplete="off"
          hint="Each code is accepted once"
          value={code}
          onInput={setCode}
        />
        <div role="status">
          {isValid === true && <p class="notice notice-good">The code is valid.</p>}
          {isValid === false && <p class="notice notice-bad">The code is wrong.</p>}
        </div>
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" isBusy={isBusy} isDisabled={code === ''}>
            Verify
          </Button>
        </div>
      </form>
    </section>
  )
}
