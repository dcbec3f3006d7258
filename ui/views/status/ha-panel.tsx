/** The servers of a highly available secrets core; nothing without high availability. */
import { type Resource, useResource } from '../../app/resource.ts'
import { hasSecrets, isSealed, token } from '../../app/session.ts'
import { Badge, Time } from '../../components/format.tsx'
import { ErrorText } from '../../components/states.tsx'
import { haSummary, type HaReport, isServerOfPage, readHa } from './ha.ts'

const RELOAD_MS = 5000

function readHaOfCore(signal: AbortSignal): Promise<HaReport | undefined> {
  return hasSecrets.value ? readHa(signal) : Promise.resolve(undefined)
}

/** Undefined data without high availability, and without a secrets core. */
export function useHa(): Resource<HaReport | undefined> {
  const inputs = [token.value, isSealed.value, hasSecrets.value]
  return useResource(readHaOfCore, inputs, { everyMs: RELOAD_MS })
}

export function HaPanel({ ha: { data, error } }: { readonly ha: Resource<HaReport | undefined> }) {
  if (error) return <ErrorText error={error} />
  if (!data) return null
  const { kind, text } = haSummary(data)
  return (
    <section class="section">
      <h2>High availability</h2>
      <div class="card">
        <p class={`notice notice-${kind}`} role="status">
          {text}
        </p>
        {data.members ? (
          <MemberTable members={data.members} isActive={data.isActive} />
        ) : (
          <p class="muted">The servers are shown to tokens that may read sys/ha/members.</p>
        )}
      </div>
    </section>
  )
}

interface MemberTableProps {
  readonly members: NonNullable<HaReport['members']>
  /** Whether the server of the page is the active one. */
  readonly isActive: boolean
}

function MemberTable({ isActive, members }: MemberTableProps) {
  const isHere = (member: (typeof members)[number]) => isServerOfPage(member, isActive, window.location.host)
  return (
    <div class="wide">
      <table class="plain-table">
        <thead>
          <tr>
            <th scope="col">Server</th>
            <th scope="col">Role</th>
            <th scope="col">Address</th>
            <th scope="col">Lag</th>
            <th scope="col">Position</th>
            <th scope="col">Version</th>
            <th scope="col">Last heard</th>
          </tr>
        </thead>
        <tbody>
          {members.map((member) => (
            <tr key={member.name}>
              <th scope="row">
                {member.name} {isHere(member) && <span class="muted">(this server)</span>}
              </th>
              <td>
                <Badge state={member.role} />
              </td>
              <td>{member.api_address}</td>
              <td>{member.lag}</td>
              <td>{member.position}</td>
              <td>{member.version}</td>
              <td>{isHere(member) ? <span class="muted">–</span> : <Time at={member.last_seen} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
