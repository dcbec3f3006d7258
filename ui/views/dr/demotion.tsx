import { useState } from 'preact/hooks'
import { secrets } from '../../api/client.ts'
import { refreshSession } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { CheckList } from './check-list.tsx'
import { demotionChecks } from './checks.ts'
import { DR, type DrReport, isReplaced } from './dr-status.ts'

interface DemotionProps {
  readonly report: DrReport
  readonly reload: () => void
}

/** The first step after a failover at the old primary. It waits for no secondary: none may follow a fenced primary. */
export function Demotion({ reload, report }: DemotionProps) {
  const [isAsking, setAsking] = useState(false)
  const demote = async () => {
    await secrets(`${DR}/primary/demote`, { method: 'POST', body: {} })
    await refreshSession().catch(() => undefined)
    reload()
  }
  return (
    <section class="card" aria-label="Demotion">
      <h2>Demote this primary</h2>
      <p>
        This primary is fenced and serves no requests. After a failover, demote it here, then join it to the new primary
        with an activation token.
      </p>
      <CheckList checks={demotionChecks(report)} />
      <div class="form-actions">
        <Button kind="danger" onClick={() => setAsking(true)}>
          Demote this primary
        </Button>
      </div>
      {isAsking && (
        <Confirm title="Demote this primary" action="Demote" typed="demote" run={demote} close={() => setAsking(false)}>
          <p>
            The server becomes a secondary that follows no primary. Its data stays.{' '}
            {isReplaced(report.status)
              ? 'Commits that the new primary lacks are moved to a file when it joins.'
              : 'No other promotion is known: if no server was promoted, none accepts writes until one is.'}
          </p>
        </Confirm>
      )}
    </section>
  )
}
