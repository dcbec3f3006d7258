import { useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { ErrorText } from '../../components/states.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { readData, type RoleCheck } from './cloud.ts'

/** The check of a role at AWS, which creates no users. */
export function RoleCheckCard({ path }: { readonly path: string }) {
  const [check, setCheck] = useState<RoleCheck>()
  const { error, isBusy, run } = useAction()
  const kind = check?.result === 'ok' ? 'good' : check?.result === 'failed' ? 'bad' : 'warning'
  return (
    <section class="card">
      <h2>Check</h2>
      <p class="hint">Checks at AWS whether the role can issue credentials. It creates no users.</p>
      {error && <ErrorText error={error} />}
      {check && (
        <div class={`notice notice-${kind}`} role="status">
          <p>
            <strong>Result: {check.result}</strong>
          </p>
          <ul>
            {check.findings.map((finding) => (
              <li key={finding}>{finding}</li>
            ))}
          </ul>
        </div>
      )}
      <div class="form-actions">
        <Button isBusy={isBusy} onClick={() => run(async () => setCheck(await readData<RoleCheck>(path)))}>
          Check the role
        </Button>
      </div>
    </section>
  )
}
