/** Which members reach the subjects of high availability, by the permissions that `outpost cluster keys` writes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HaSubjects } from '../../../src/cluster/nats/ha-subjects.ts'
import { permissionsOf } from '../../../src/cluster/nats/permissions.ts'

const ha = new HaSubjects('global')
const REACHED = [ha.commits, ha.stored, ha.leaseChanged, ha.activeRows('s1'), ha.copy('s1'), `${ha.bucketPrefix}active`]

/** Whether a subject of NATS matches a pattern with `*` and `>`. */
function matches(pattern: string, subject: string): boolean {
  const [tokens, given] = [pattern.split('.'), subject.split('.')]
  const isOpen = tokens.at(-1) === '>'
  const length = isOpen ? tokens.length - 1 : tokens.length
  if (isOpen ? given.length <= length : given.length !== length) return false
  return tokens.slice(0, length).every((token, at) => token === '*' || token === given[at])
}

test('a server with a core reaches the commit stream and the lease, a server without one and a host do not', () => {
  const reached = (role: Parameters<typeof permissionsOf>[0]) => {
    const { publish, subscribe } = permissionsOf(role, 'global')
    return [
      REACHED.filter((subject) => publish.some((pattern) => matches(pattern, subject))),
      REACHED.filter((subject) => subscribe.some((pattern) => matches(pattern, subject))),
      [...publish, ...subscribe].some((subject) => subject.startsWith('$')),
    ]
  }
  assert.deepEqual(reached('server'), [REACHED, REACHED.slice(0, -1), true])
  for (const role of ['edge', { nodeId: 'w1' }] as const) assert.deepEqual(reached(role), [[], [], false])
})
