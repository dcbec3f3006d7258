/** Servers and callers that know each other's keys over a bus, for calls that are sealed. */
import type { TestContext } from 'node:test'
import { CurveKey } from '../../src/cluster/trust/envelope.ts'
import type { Link } from '../../src/cluster/nats/link.ts'
import { newSeed, signingKeyOf } from '../../src/cluster/nats/nkey.ts'
import { SealedCalls } from '../../src/cluster/rpc/sealed-calls.ts'
import { ServerCalls } from '../../src/cluster/rpc/server-calls.ts'
import { ServerKeys, type TrustedKeys } from '../../src/cluster/trust/server-trust.ts'
import type { Party, Subjects } from '../../src/cluster/nats/subjects.ts'
import type { Logger } from '../../src/platform/log.ts'

export interface Sealing {
  readonly keys: ServerKeys
  readonly curve: CurveKey
  readonly publicKey: string
  /** To make calls to servers with. */
  readonly calls: ServerCalls
  /** To take calls with that anybody may make, and those that servers only may make. */
  readonly taken: { readonly any: SealedCalls; readonly core: SealedCalls }
}

/** What a process has as a party on the bus, announced when it is a server. */
export function sealingFor(
  t: Pick<TestContext, 'after'>,
  options: { link: Link; subjects: Subjects; self: Party; logger: Logger; trusted?: TrustedKeys; hasCore?: boolean },
): Sealing {
  const { link, logger, self, subjects, trusted = {}, hasCore = true } = options
  const key = signingKeyOf(newSeed())
  const curve = new CurveKey()
  const isServer = 'serverId' in self
  const keys = new ServerKeys({
    link,
    subjects,
    self,
    trusted,
    ownKey: isServer ? () => key : undefined,
    about: isServer ? { serverId: self.serverId, hasCore, curveKey: curve.publicKey } : undefined,
    logger,
  })
  keys.start()
  t.after(() => keys.stop())
  return {
    keys,
    curve,
    publicKey: key.publicKey,
    calls: new ServerCalls({ keys, curve, logger }),
    taken: { any: new SealedCalls({ link, curve }), core: new SealedCalls({ link, curve, servers: keys }) },
  }
}
