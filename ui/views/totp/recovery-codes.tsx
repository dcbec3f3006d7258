import { Button } from '../../components/button.tsx'
import { copySecret } from '../../components/secret-value.tsx'
import { Check } from '../../components/check.tsx'

interface RecoveryCodesProps {
  readonly codes: readonly string[]
  readonly isSaved: boolean
  readonly setSaved: (isSaved: boolean) => void
}

/** The codes are in the document until the user has saved them. */
export function RecoveryCodes({ codes, isSaved, setSaved }: RecoveryCodesProps) {
  return (
    <section class="form" aria-label="Recovery codes">
      <h3>Recovery codes</h3>
      <p class="hint">
        Each can be used once instead of a code, for example after the loss of a phone. They are shown once.
      </p>
      {isSaved ? (
        <p class="muted">Saved. The codes are not shown again.</p>
      ) : (
        <>
          <ul class="recovery-codes">
            {codes.map((code) => (
              <li key={code}>
                <code>{code}</code>
              </li>
            ))}
          </ul>
          <div class="form-actions">
            <Button label="Copy the recovery codes" onClick={() => void copySecret(codes.join('\n'))}>
              Copy
            </Button>
          </div>
          <Check label="I have saved the recovery codes" isChecked={false} set={setSaved} />
        </>
      )}
    </section>
  )
}
