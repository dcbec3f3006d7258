import { useState } from 'preact/hooks'
import { showSuccess } from '../../app/toasts.tsx'
import { Button } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { Check } from '../../components/check.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { GeneratedKeyCard } from './generated-key.tsx'
import { type GeneratedKey, type KeyDraft, writeKey } from './totp.ts'

interface KeyCreationProps {
  readonly mounts: readonly string[]
  readonly close: () => void
  readonly created: () => void
}

/** Generates or imports a key. A generated one is shown once. */
export function KeyCreation({ close, created, mounts }: KeyCreationProps) {
  const [key, setKey] = useState<GeneratedKey>()
  const [draft, setDraft] = useState<KeyDraft>({
    mount: mounts[0] ?? '',
    name: '',
    isGenerated: true,
    issuer: '',
    account: '',
    imported: '',
  })
  const { error, isBusy, run } = useAction()
  const change = (changes: Partial<KeyDraft>) => setDraft((before) => ({ ...before, ...changes }))
  const submit = (event: Event) => {
    event.preventDefault()
    run(async () => {
      if (draft.name.trim() === '') throw new Error('Enter a name.')
      const generated = await writeKey({ ...draft, name: draft.name.trim(), imported: draft.imported.trim() })
      created()
      if (generated) setKey(generated)
      else {
        showSuccess(`Imported the key ${draft.name}.`)
        close()
      }
    })
  }
  if (key) {
    return (
      <Dialog title="Key generated" close={close} lost="The key is not shown again.">
        <div class="form">
          <GeneratedKeyCard generated={key} />
          <p>The server shows the key once. Scan it before you close this dialog.</p>
          <div class="form-actions">
            <Button kind="primary" onClick={close}>
              I have scanned it
            </Button>
          </div>
        </div>
      </Dialog>
    )
  }
  const isUrl = draft.imported.trim().startsWith('otpauth:')
  return (
    <Dialog title="Create a key" close={close}>
      <form class="form" onSubmit={submit}>
        <fieldset class="choices">
          <legend>Source</legend>
          <Check
            group="source"
            label="Generate: to verify the codes of an authenticator"
            isChecked={draft.isGenerated}
            set={() => change({ isGenerated: true })}
          />
          <Check
            group="source"
            label="Import: to show the codes here"
            isChecked={!draft.isGenerated}
            set={() => change({ isGenerated: false })}
          />
        </fieldset>
        {mounts.length > 1 && (
          <fieldset class="choices">
            <legend>Mount</legend>
            {mounts.map((mount) => (
              <Check
                key={mount}
                group="mount"
                label={mount}
                isChecked={draft.mount === mount}
                set={() => change({ mount })}
              />
            ))}
          </fieldset>
        )}
        <Field
          label="Name"
          hint="A key of this name is replaced"
          autoComplete="off"
          value={draft.name}
          onInput={(name) => change({ name })}
        />
        {!draft.isGenerated && (
          <Field
            label="otpauth URL or key"
            hint="The URL behind a QR code, or the key in base32"
            isSecret
            autoComplete="off"
            value={draft.imported}
            onInput={(imported) => change({ imported })}
          />
        )}
        {(draft.isGenerated || !isUrl) && (
          <>
            <Field label="Issuer" value={draft.issuer} onInput={(issuer) => change({ issuer })} />
            <Field
              label="Account"
              autoComplete="off"
              value={draft.account}
              onInput={(account) => change({ account })}
            />
          </>
        )}
        {error && <ErrorText error={error} />}
        <div class="form-actions">
          <Button type="submit" kind="primary" isBusy={isBusy}>
            {draft.isGenerated ? 'Generate key' : 'Import key'}
          </Button>
          <Button onClick={close}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  )
}
