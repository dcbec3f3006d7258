/** Garbage collection with a preview: the allocations that would be removed, then the confirmed result. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { pathOf } from '../../app/location.ts'
import { useResource } from '../../app/resource.ts'
import { mayChangeHosts } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Badge, Time } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { Empty, ErrorText, Loaded } from '../../components/states.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { type Candidate, collect, findCandidates } from './gc-requests.ts'
import { type CollectionResult, collectionSummary, endedAtMs } from './gc-rules.ts'
import { useNamespacePermissions } from './namespace-permissions.ts'

interface CollectDialogProps {
  readonly nodeId: string
  /** Only this allocation. */
  readonly only?: string
  readonly close: () => void
  readonly onCollected: () => void
}

export function CollectDialog({ close, nodeId, onCollected, only }: CollectDialogProps) {
  const candidates = useResource(
    async (signal) => {
      const found = await findCandidates(nodeId, signal)
      return only === undefined ? found : found.filter(({ allocation }) => allocation.ID === only)
    },
    [nodeId, only],
  )
  return (
    <Dialog title="Garbage collection" close={close} class="dialog-wide">
      <Loaded resource={candidates}>
        {(found) => (
          <Collection
            nodeId={nodeId}
            candidates={found}
            isSingle={only !== undefined}
            close={close}
            onCollected={onCollected}
          />
        )}
      </Loaded>
    </Dialog>
  )
}

interface CollectionProps {
  readonly nodeId: string
  readonly candidates: readonly Candidate[]
  readonly isSingle: boolean
  readonly close: () => void
  readonly onCollected: () => void
}

function Collection({ candidates, close, isSingle, nodeId, onCollected }: CollectionProps) {
  const may = useNamespacePermissions(candidates.map(({ allocation }) => allocation.Namespace))
  const [results, setResults] = useState<readonly CollectionResult[]>()
  const [error, setError] = useState<Error>()
  const [isBusy, setBusy] = useState(false)
  const abort = useRef(new AbortController())
  useEffect(() => () => abort.current.abort(), [])

  const permitted = candidates.filter(
    ({ allocation }) => may(allocation.Namespace, 'submit-job', 'gc-allocation') || (mayChangeHosts.value && !isSingle),
  )
  const run = async () => {
    setBusy(true)
    setError(undefined)
    try {
      setResults(await collect(nodeId, permitted, may, abort.current.signal))
      onCollected()
    } catch (failure) {
      if (!abort.current.signal.aborted) setError(failure instanceof Error ? failure : new Error(String(failure)))
    }
    setBusy(false)
  }
  if (candidates.length === 0) {
    return (
      <Empty title="Nothing to collect">
        <p>No ended allocation on this host has a directory.</p>
      </Empty>
    )
  }
  return (
    <div class="form">
      {results ? (
        <p role="status">
          <strong>{collectionSummary(results)}</strong>
        </p>
      ) : (
        <p>
          Removes the directories of {permitted.length} ended {permitted.length === 1 ? 'allocation' : 'allocations'}{' '}
          with their logs and files. They cannot be restored.
          {permitted.length < candidates.length &&
            ` Your token may not collect ${candidates.length - permitted.length} others.`}
        </p>
      )}
      <div class="wide collect-list">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Allocation</th>
              <th scope="col">Job</th>
              <th scope="col">Status</th>
              <th scope="col">Ended</th>
              <th scope="col">{results ? 'Result' : 'Removed'}</th>
            </tr>
          </thead>
          <tbody>
            {candidates.map((candidate) => (
              <CandidateRow
                key={candidate.allocation.ID}
                candidate={candidate}
                isPermitted={permitted.includes(candidate)}
                result={results?.find(({ id }) => id === candidate.allocation.ID)}
              />
            ))}
          </tbody>
        </table>
      </div>
      {error && <ErrorText error={error} />}
      <div class="form-actions">
        <Button onClick={close}>{results ? 'Close' : 'Cancel'}</Button>
        {!results && permitted.length > 0 && (
          <Button kind="danger" isBusy={isBusy} onClick={() => void run()}>
            {isBusy ? 'Collecting…' : `Remove ${permitted.length}`}
          </Button>
        )}
      </div>
    </div>
  )
}

interface CandidateRowProps {
  readonly candidate: Candidate
  readonly isPermitted: boolean
  readonly result: CollectionResult | undefined
}

const RESULT_TEXTS = { removed: 'removed', kept: 'not removed', present: 'not removed', unknown: 'not confirmed' }

function CandidateRow({ candidate: { allocation }, isPermitted, result }: CandidateRowProps) {
  return (
    <tr>
      <th scope="row">
        <Link to={pathOf('files', allocation.ID)}>
          <bdi>{visibleText(allocation.Name)}</bdi>
        </Link>{' '}
        <span class="muted">{allocation.ID.slice(0, 8)}</span>
      </th>
      <td>
        <bdi>{visibleText(allocation.JobID)}</bdi>
      </td>
      <td>
        <Badge state={allocation.ClientStatus} />
      </td>
      <td>
        <Time at={endedAtMs(allocation)} />
      </td>
      <td>
        {result ? (
          <span class={result.state === 'removed' ? 'good' : 'bad'}>
            {RESULT_TEXTS[result.state]}
            {result.error !== undefined && `: ${result.error}`}
          </span>
        ) : isPermitted ? (
          'yes'
        ) : (
          'no permission'
        )}
      </td>
    </tr>
  )
}
