import { useEffect, useState } from 'preact/hooks'
import { Button } from '../../components/button.tsx'
import { copySecret } from '../../components/secret-value.tsx'
import { ErrorText } from '../../components/states.tsx'
import { errorFrom } from '../../components/core-parts.tsx'
import { codePeriod, groupedCode } from './countdown.ts'
import { type Code, readCode } from './totp.ts'

const TICK_MS = 250
/** The code is hidden after this time. */
const SHOWN_MS = 120_000

interface CodeDisplayProps {
  readonly mount: string
  readonly name: string
  readonly periodSeconds: number
}

/** The current code, requested when the user asks for it, and read again in each period while it is shown. */
export function CodeDisplay(props: CodeDisplayProps) {
  const [isShown, setShown] = useState(false)
  useEffect(() => {
    if (!isShown) return undefined
    const timer = setTimeout(() => setShown(false), SHOWN_MS)
    return () => clearTimeout(timer)
  }, [isShown])
  return (
    <section class="card">
      <h2>Code</h2>
      {isShown ? (
        <ShownCode {...props} hide={() => setShown(false)} />
      ) : (
        <div class="form-actions">
          <Button kind="primary" onClick={() => setShown(true)}>
            Show the code
          </Button>
        </div>
      )}
    </section>
  )
}

function ShownCode({ hide, mount, name, periodSeconds }: CodeDisplayProps & { readonly hide: () => void }) {
  const [code, setCode] = useState<Code>()
  const [error, setError] = useState<Error>()
  const [nowMs, setNowMs] = useState(Date.now())
  const period = codePeriod(nowMs + (code?.offsetMs ?? 0), periodSeconds)
  useEffect(() => {
    const timer = setInterval(() => setNowMs(Date.now()), TICK_MS)
    return () => clearInterval(timer)
  }, [])
  useEffect(() => {
    const abort = new AbortController()
    const read = async () => {
      try {
        setCode(await readCode(mount, name, abort.signal))
        setError(undefined)
      } catch (failure) {
        if (!abort.signal.aborted) setError(errorFrom(failure))
      }
    }
    void read()
    return () => abort.abort()
  }, [period.step])
  return (
    <>
      {error && <ErrorText error={error} />}
      {code && (
        <p class="code-line">
          <code class="code-digits">{groupedCode(code.code)}</code>
          <span class="countdown">
            <span class="countdown-bar" aria-hidden="true">
              <span style={{ width: `${period.share * 100}%` }} />
            </span>
            {period.secondsLeft} s
          </span>
        </p>
      )}
      <div class="form-actions">
        {code && (
          <Button label="Copy the code" onClick={() => void copySecret(code.code)}>
            Copy
          </Button>
        )}
        <Button onClick={hide}>Hide</Button>
      </div>
    </>
  )
}
