/** What `outpost status` shows: readiness checks, seal, servers, and the hosts in numbers. */
import { ApiError, read, sendJson } from '../../api/client.ts'
import type { ServerServers } from '../../api/types.ts'
import { useResource } from '../../app/resource.ts'
import { features, mayReadHosts } from '../../app/session.ts'
import { Button } from '../../components/button.tsx'
import { Badge } from '../../components/format.tsx'
import { Link } from '../../components/link.tsx'
import { Loaded } from '../../components/states.tsx'
import { View } from '../../components/view.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import { loadHosts } from '../hosts/host-api.ts'
import {
  adviceFor,
  countBy,
  otherWarnings,
  type Readiness,
  type ReadinessCheck,
  sortedChecks,
  stateOf,
} from './advice.ts'
import { type HaMember, serverState, type ServerState, shownRole } from './ha.ts'
import { HaPanel, useHa } from './ha-panel.tsx'
import { SealFacts } from './seal-facts.tsx'

const RELOAD_MS = 5000
const RELOAD_MEMBERS_MS = 15_000
const RELOAD_HOSTS_MS = 60_000

function isReadiness(value: unknown): value is Readiness {
  return typeof value === 'object' && value !== null && 'checks' in value && Array.isArray(value.checks)
}

/** A process that is not ready answers with an error status and the same body. */
async function loadReadiness(signal: AbortSignal): Promise<Readiness> {
  try {
    return await sendJson<Readiness>('/v1/agent/ready', { query: { standbyok: true }, signal })
  } catch (error) {
    if (error instanceof ApiError && isReadiness(error.data)) return error.data
    throw error
  }
}

export default function StatusView() {
  const readiness = useResource(loadReadiness, [], { everyMs: RELOAD_MS })
  const ha = useHa()
  const roleOf = (role: string) => shownRole(role, ha.data, !ha.isLoading || ha.data !== undefined)
  return (
    <View title="Status" actions={<Button onClick={readiness.reload}>Check again</Button>}>
      <Loaded resource={readiness}>{(data) => <Checks readiness={data} shown={roleOf(data.role)} />}</Loaded>
      {features.value?.seal && <SealFacts seal={features.value.seal} />}
      {features.value?.seal && <HaPanel ha={ha} />}
      {features.value?.isServer && mayReadHosts.value && <Members ha={ha.data?.members} />}
      {mayReadHosts.value && <HostNumbers />}
      {!mayReadHosts.value && (
        <p class="muted">Servers and hosts are shown to tokens that may read nodes (policy rule node = "read").</p>
      )}
    </View>
  )
}

const ROLE_TEXTS: Readonly<Record<string, string>> = {
  standby: 'This process is a healthy standby: it serves requests after it is promoted.',
  fenced: 'This process is fenced: another primary has replaced it, or it is isolated, so it serves no requests.',
}

interface ChecksProps {
  readonly readiness: Readiness
  /** The role in the first line. */
  readonly shown: string
}

function Checks({ readiness, shown }: ChecksProps) {
  const { ready, role } = readiness
  const warnings = otherWarnings(readiness)
  const { isClient, isServer } = features.value ?? { isClient: false, isServer: false }
  const roles = [isServer && 'server', isClient && 'client'].filter((each) => each !== false)
  return (
    <section class="card" aria-label="Readiness">
      <p class="host-status">
        <Badge state={ready ? 'ready' : 'not ready'} />
        <span>
          {roles.join(' and ')} at {window.location.host}
          {shown !== '' && `, ${shown}`}
        </span>
      </p>
      {ROLE_TEXTS[role] !== undefined && <p>{ROLE_TEXTS[role]}</p>}
      <ul class="checks">
        {sortedChecks(readiness).map((check) => (
          <CheckRow key={check.name} check={check} />
        ))}
      </ul>
      {warnings.length > 0 && (
        <>
          <h2>Warnings</h2>
          <ul class="warnings">
            {warnings.map((warning) => (
              <li key={warning} class="banner banner-warning">
                {visibleText(warning)}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  )
}

const STATE_KINDS = { failing: 'bad', warning: 'warning', ok: 'good' } as const

function CheckRow({ check }: { readonly check: ReadinessCheck }) {
  const { name, reason, warnings = [] } = check
  const state = stateOf(check)
  const advice = state === 'ok' ? undefined : adviceFor(name)
  return (
    <li class="check-row">
      <span class={`badge badge-${STATE_KINDS[state]}`}>{state}</span>
      <strong>{name}</strong>
      <span>{visibleText(reason)}</span>
      {warnings.map((warning) => (
        <p key={warning} class="check-advice check-warning">
          {visibleText(warning)}
        </p>
      ))}
      {advice && (
        <p class={state === 'warning' ? 'check-advice check-warning' : 'check-advice'}>
          {advice.text} {advice.link && <Link to={advice.link.to}>{advice.link.title}</Link>}{' '}
          {advice.command !== undefined && <code>{advice.command}</code>}
        </p>
      )}
    </li>
  )
}

function Members({ ha }: { readonly ha: readonly HaMember[] | undefined }) {
  const members = useResource((signal) => read('/v1/operator/members', { signal }), [], { everyMs: RELOAD_MEMBERS_MS })
  return (
    <section class="section">
      <h2>Servers</h2>
      <Loaded resource={members}>{(data) => <MemberTable members={data} ha={ha} />}</Loaded>
    </section>
  )
}

interface MemberTableProps {
  readonly members: ServerServers
  readonly ha: readonly HaMember[] | undefined
}

function MemberTable({ ha, members }: MemberTableProps) {
  const versions = countBy(members, ({ Version }) => Version)
  return (
    <div class="card">
      {versions.length > 1 && (
        <p class="banner banner-warning">
          The servers have {versions.length} versions:{' '}
          {versions.map(([version, count]) => `${version} (${count})`).join(', ')}. Finish the upgrade.
        </p>
      )}
      <div class="wide">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Address</th>
              <th scope="col">Status</th>
              <th scope="col">Version</th>
              <th scope="col">Secrets core</th>
              <th scope="col">Last announcement</th>
            </tr>
          </thead>
          <tbody>
            {members.map((member) => (
              <MemberRow key={member.ID} member={member} state={serverState(member, ha)} />
            ))}
          </tbody>
        </table>
      </div>
    </div>
  )
}

interface MemberRowProps {
  readonly member: ServerServers[number]
  readonly state: ServerState
}

function MemberRow({ member, state }: MemberRowProps) {
  return (
    <tr>
      <th scope="row">
        {visibleText(member.Name || member.ID)} {member.IsSelf && <span class="muted">(this server)</span>}
      </th>
      <td>{visibleText(member.Address)}</td>
      <td>
        <span class={state.status === 'alive' ? 'badge badge-good' : 'badge badge-bad'}>{state.status}</span>
      </td>
      <td>{visibleText(member.Version)}</td>
      <td>{member.HasCore ? <Badge state={state.core} /> : <span class="muted">none</span>}</td>
      <td>{member.IsSelf ? <span class="muted">–</span> : `${member.SecondsSinceAnnouncement} s ago`}</td>
    </tr>
  )
}

function HostNumbers() {
  const hosts = useResource((signal) => loadHosts([], signal), [], { everyMs: RELOAD_HOSTS_MS })
  return (
    <section class="section">
      <h2>Hosts</h2>
      <Loaded resource={hosts}>
        {(data) => (
          <dl class="card facts">
            <dt>Status</dt>
            <dd class="inline-links">
              {countBy(data, ({ Status }) => Status).map(([status, count]) => (
                <Link key={status} to={`/hosts?status=${encodeURIComponent(status)}`}>
                  {count} {status}
                </Link>
              ))}
              {data.length === 0 && <span class="muted">no host has registered</span>}
            </dd>
            <dt>Versions</dt>
            <dd class="inline-links">
              {countBy(data, ({ Version }) => Version).map(([version, count]) => (
                <span key={version}>
                  {visibleText(version)}: {count}
                </span>
              ))}
            </dd>
          </dl>
        )}
      </Loaded>
    </section>
  )
}
