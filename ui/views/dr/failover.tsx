import { useEffect, useRef, useState } from 'preact/hooks'
import { secrets } from '../../api/client.ts'
import { refreshSession } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { Field } from '../../components/field.tsx'
import { ErrorText } from '../../components/states.tsx'
import { Check } from '../../components/check.tsx'
import { useAction } from '../../components/core-parts.tsx'
import { CheckList } from './check-list.tsx'
import { failoverChecks, hasFailed } from './checks.ts'
import { DR, type DrReport, readDrStatus, shortDuration } from './dr-status.ts'
import { handoverProblem, nextStep } from './handover.ts'
import { deleteOperationToken } from './operation-token.ts'
import { ShareEntry } from './share-entry.tsx'

/** A promotion of this page. */
export interface Promotion {
  readonly durationMs: number
  readonly epoch: number
  /** The second half of a planned switch: the old primary is demoted. */
  readonly isPlanned: boolean
}

interface FailoverProps {
  readonly report: DrReport
  readonly reload: () => void
  readonly promoted: (promotion: Promotion) => void
}

const CONFIRMATION = 'promote'

/** Checks, operation token, confirmation, promotion: nothing changes before the confirmation. */
export function Failover({ promoted, reload, report }: FailoverProps) {
  const [step, setStep] = useState<'closed' | 'shares' | 'ready'>('closed')
  const token = useRef('')
  const checks = failoverChecks(report)
  const forget = () => {
    if (token.current !== '') void deleteOperationToken(token.current)
    token.current = ''
  }
  useEffect(() => forget, [])
  const cancel = () => {
    forget()
    setStep('closed')
  }
  return (
    <section class="card" aria-label="Failover">
      <h2>Promote this server</h2>
      <p>
        Promote this server to fail over when the primary is lost, or as the second step of a planned switch. The server
        checks the following. Nothing changes before you confirm:
      </p>
      <CheckList checks={checks} />
      {step === 'closed' && (
        <div class="form-actions">
          <Button kind="danger" isDisabled={hasFailed(checks)} onClick={() => setStep('shares')}>
            Prepare the promotion
          </Button>
        </div>
      )}
      {step === 'shares' && (
        <ShareEntry
          cancel={cancel}
          use={(given) => {
            token.current = given
            setStep('ready')
          }}
        />
      )}
      {step === 'ready' && (
        <ReadyToPromote
          report={report}
          isBlocked={hasFailed(checks)}
          cancel={cancel}
          promote={async (isForced, isPlanned) => {
            const given = token.current
            // A refused promotion deletes the token: it has no other use.
            token.current = ''
            promoted({ ...(await promote(given, isForced)), isPlanned })
            reload()
          }}
          refused={() => setStep('shares')}
        />
      )}
    </section>
  )
}

async function promote(token: string, isForced: boolean): Promise<Omit<Promotion, 'isPlanned'>> {
  const startedAtMs = performance.now()
  try {
    const body = { dr_operation_token: token, force: isForced, primary_cluster_addr: '' }
    await secrets(`${DR}/secondary/promote`, { method: 'POST', body })
  } catch (error) {
    await deleteOperationToken(token)
    throw error
  }
  const durationMs = performance.now() - startedAtMs
  const { epoch = 0 } = await readDrStatus()
  await refreshSession().catch(() => undefined)
  return { durationMs, epoch }
}

interface ReadyToPromoteProps {
  readonly report: DrReport
  readonly isBlocked: boolean
  readonly promote: (isForced: boolean, isPlanned: boolean) => Promise<void>
  readonly cancel: () => void
  /** After a refusal, the shares are needed again. */
  readonly refused: () => void
}

function ReadyToPromote({ cancel, isBlocked, promote: send, refused, report }: ReadyToPromoteProps) {
  const [handover, setHandover] = useState('')
  const [text, setText] = useState('')
  const [isForced, setForced] = useState(false)
  const { error, isBusy, run } = useAction()
  const problem = handoverProblem(handover, report.status)
  const submit = (event: Event) => {
    event.preventDefault()
    run(() => send(isForced, handover.trim() !== ''))
  }
  return (
    <form class="form" onSubmit={submit}>
      <p class="notice notice-good" role="status">
        Ready to promote: the operation token was generated. It is deleted when you cancel or leave this view.
      </p>
      <Field
        label="State of the demoted primary"
        hint="Only for a planned switch: the text that the page of the old primary shows after the demotion. The promotion waits until this server has the same entries."
        autoComplete="off"
        value={handover}
        onInput={setHandover}
      />
      {problem !== undefined && <p class="notice notice-warning">{problem}</p>}
      <p>
        The promotion cannot be undone. Commits that only the old primary has are moved to a file there. The old primary
        is fenced as soon as it can be reached.
      </p>
      <Check label="Promote even if commits of the primary may be lost" isChecked={isForced} set={setForced} />
      <Field label={`Type "${CONFIRMATION}" to confirm`} autoComplete="off" value={text} onInput={setText} />
      {error && (
        <>
          <ErrorText error={error} />
          <p class="hint">Nothing was changed, and the operation token was deleted. Enter the shares again to retry.</p>
        </>
      )}
      <div class="form-actions">
        {error ? (
          <Button kind="primary" onClick={refused}>
            Enter the shares again
          </Button>
        ) : (
          <Button
            type="submit"
            kind="danger"
            isBusy={isBusy}
            isDisabled={text !== CONFIRMATION || problem !== undefined || isBlocked}
          >
            Promote
          </Button>
        )}
        <Button onClick={cancel}>Cancel</Button>
      </div>
    </form>
  )
}

interface PromotionResultProps {
  readonly promotion: Promotion
  readonly report: DrReport
}

/** What serves afterwards, and what to do next. */
export function PromotionResult({ promotion, report: { status } }: PromotionResultProps) {
  const isRunning = status.mode === 'primary' && status.state === 'running'
  const isOwed = status.fence_notice === 'owed'
  return (
    <section class={`notice notice-${isRunning ? 'good' : 'warning'}`} role="status">
      <p>
        Promoted to primary of epoch {promotion.epoch} in {shortDuration(promotion.durationMs)}.
        {!isRunning && ` The server does not accept writes: its state is “${status.state ?? 'unknown'}”.`}
      </p>
      <p>
        {isOwed
          ? 'The old primary has not received the fence notice; the server retries every second.'
          : 'The old primary has received the fence notice, or needs none.'}
      </p>
      <p>{nextStep(promotion.isPlanned)}</p>
    </section>
  )
}
