import { useState } from 'preact/hooks'
import { useCapabilities } from '../../api/capabilities.ts'
import { secrets } from '../../api/client.ts'
import { refreshSession } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { Confirm } from '../../components/dialog.tsx'
import { Check } from '../../components/check.tsx'
import { CheckList } from './check-list.tsx'
import { hasFailed, switchChecks } from './checks.ts'
import { DR, type DrReport, peersOf } from './dr-status.ts'

const DEMOTE = `${DR}/primary/demote`
const TOKEN = `${DR}/primary/secondary-token`

interface SwitchProps {
  readonly report: DrReport
  readonly reload: () => void
}

/** The first half of a planned switch: this primary is demoted after its secondary has all commits. */
export function Switch({ reload, report }: SwitchProps) {
  const may = useCapabilities([DEMOTE, TOKEN])
  const ids = peersOf(report.status).flatMap(({ node_id: id }) => (id === undefined ? [] : [id]))
  const [chosen, setChosen] = useState<string>()
  const [isVersionChecked, setVersionChecked] = useState(false)
  const [isReady, setReady] = useState(false)
  const [isAsking, setAsking] = useState(false)
  const id = chosen ?? ids[0]
  if (id === undefined) return null
  const mayDemote = may.isKnown ? [DEMOTE, TOKEN].every((path) => may(path, 'update') && may(path, 'sudo')) : undefined
  const checks = switchChecks(report, id, mayDemote)
  const demote = async () => {
    await secrets(DEMOTE, { method: 'POST', body: { secondary_id: id } })
    await refreshSession().catch(() => undefined)
    reload()
  }
  return (
    <section class="card" aria-label="Planned switch">
      <h2>Planned switch</h2>
      <p>
        Exchanges the roles of this primary and a secondary without losing a commit. Each page reaches only its own
        server, so open the page of the secondary beside this one. From one terminal,{' '}
        <code>outpost operator dr switch -secondary URL</code> does the same.
      </p>
      {ids.length > 1 && (
        <fieldset class="choices">
          <legend>Secondary to promote</legend>
          {ids.map((each) => (
            <Check key={each} group="secondary" label={each} isChecked={each === id} set={() => setChosen(each)} />
          ))}
        </fieldset>
      )}
      <CheckList checks={checks} />
      <div>
        <Check
          label={`The page of the secondary shows the version ${report.health.version}`}
          isChecked={isVersionChecked}
          set={setVersionChecked}
        />
        <Check
          label="The page of the secondary shows “Ready to promote”: the key shares are correct"
          isChecked={isReady}
          set={setReady}
        />
      </div>
      <div class="form-actions">
        <Button
          kind="danger"
          isDisabled={hasFailed(checks) || !isVersionChecked || !isReady}
          onClick={() => setAsking(true)}
        >
          Demote this primary
        </Button>
      </div>
      {isAsking && (
        <Confirm title="Demote this primary" action="Demote" typed="demote" run={demote} close={() => setAsking(false)}>
          <p>
            Writes stop. The role changes after “{id}” has acknowledged all commits, within 15 s; otherwise nothing
            changes. Until its promotion, no server accepts writes and callers get errors.
          </p>
        </Confirm>
      )}
    </section>
  )
}
