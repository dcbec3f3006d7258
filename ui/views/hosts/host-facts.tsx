/** What a host has reported about itself. */
import { useState } from 'preact/hooks'
import type { ServerNode } from '../../api/types.ts'
import { formatBytes, Time } from '../../components/format.tsx'
import { Field } from '../../components/field.tsx'
import { visibleText } from '../../app/invisible-characters.ts'
import type { Host } from './host-api.ts'
import { HostStatus } from './host-status.tsx'

interface NodeProps {
  readonly node: ServerNode
}

/** Attributes are text that the host chose. */
function attribute({ Attributes }: ServerNode, ...names: readonly string[]): string {
  const found = names.flatMap((name) => (Object.hasOwn(Attributes, name) ? [Attributes[name] ?? ''] : []))
  return visibleText(found.filter((value) => value !== '').join(' '))
}

export function HostFacts({ node }: { readonly node: Host }) {
  const memory = Number(attribute(node, 'memory.totalbytes'))
  const cores = attribute(node, 'cpu.numcores')
  const system = attribute(node, 'os.title') || attribute(node, 'os.name', 'os.version')
  const facts: readonly (readonly [string, string])[] = [
    ['ID', node.ID],
    ['Address', visibleText(node.HTTPAddr)],
    ['Datacenter', visibleText(node.Datacenter)],
    ['Class', visibleText(node.NodeClass)],
    ['Pool', visibleText(node.NodePool)],
    ['Version', visibleText(node.Meta['outpost.version'] ?? '')],
    [
      'System',
      [system, attribute(node, 'kernel.name', 'kernel.version'), attribute(node, 'cpu.arch')]
        .filter(Boolean)
        .join(', '),
    ],
    ['CPU', [cores === '' ? '' : `${cores} × ${attribute(node, 'cpu.modelname') || 'CPU'}`].filter(Boolean).join('')],
    ['Memory', Number.isFinite(memory) && memory > 0 ? formatBytes(memory) : ''],
  ]
  return (
    <div class="card">
      <p class="host-status">
        <HostStatus {...node} />
        <span>
          since <Time at={node.StatusUpdatedAt * 1000} />
        </span>
        {node.StatusDescription !== '' && <span>{visibleText(node.StatusDescription)}</span>}
      </p>
      <dl class="facts facts-columns">
        {facts
          .filter(([, value]) => value !== '')
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <bdi>{value}</bdi>
              </dd>
            </div>
          ))}
      </dl>
    </div>
  )
}

export function HostAttributes({ node }: NodeProps) {
  const [search, setSearch] = useState('')
  const wanted = search.toLowerCase()
  const found = Object.entries(node.Attributes)
    .filter(([key, value]) => key.toLowerCase().includes(wanted) || value.toLowerCase().includes(wanted))
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
  return (
    <div class="card">
      <Field
        label="Search attributes"
        isLabelHidden
        isSearch
        value={search}
        placeholder="Name or value"
        onInput={setSearch}
      />
      <div class="wide">
        <table class="plain-table">
          <thead>
            <tr>
              <th scope="col">Attribute</th>
              <th scope="col">Value</th>
            </tr>
          </thead>
          <tbody>
            {found.map(([key, value]) => (
              <tr key={key}>
                <th scope="row">
                  <bdi>{visibleText(key)}</bdi>
                </th>
                <td>
                  <bdi>{visibleText(value)}</bdi>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length === 0 && <p class="muted">No attribute matches.</p>}
    </div>
  )
}

export function HostEvents({ node: { Events } }: NodeProps) {
  if (Events.length === 0)
    return <p class="muted">No event is known. Events are those since the start of this server.</p>
  return (
    <div class="card wide">
      <table class="plain-table">
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Event</th>
          </tr>
        </thead>
        <tbody>
          {Events.toReversed().map(({ Message, Timestamp }, index) => (
            <tr key={`${Timestamp}/${index}`}>
              <td>
                <Time at={Timestamp} />
              </td>
              <td>
                <bdi>{visibleText(Message)}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
