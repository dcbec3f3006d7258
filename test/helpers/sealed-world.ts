/** Servers and callers on a bus that know the keys of each other, for sealed calls. */
import type { TestContext } from 'node:test'
import { CurveKey } from '../../src/cluster/trust/envelope.ts'
import type { MessageBus } from '../../src/cluster/nats/message-bus.ts'
import { newSeed, signingKeyOf } from '../../src/cluster/nats/nkey.ts'
import { SealedCallReceiver } from '../../src/cluster/rpc/sealed-call-receiver.ts'
import { SealedCallSender } from '../../src/cluster/rpc/sealed-call-sender.ts'
import { ServerKeys, type TrustedKeys } from '../../src/cluster/trust/server-trust.ts'
import type { ClusterMember, Subjects } from '../../src/cluster/nats/subjects.ts'
import type { Logger } from '../../src/platform/log.ts'

export interface Sealing {
  readonly keys: ServerKeys
  readonly curve: CurveKey
  readonly publicKey: string
  /** Encrypts calls to servers. */
  readonly calls: SealedCallSender
  /** Decrypts calls of any caller, and calls reserved for servers. */
  readonly taken: { readonly any: SealedCallReceiver; readonly core: SealedCallReceiver }
}

/** The keys of a process on the bus, announced if it is a server. */
export function sealingFor(
  t: Pick<TestContext, 'after'>,
  options: {
    bus: MessageBus
    subjects: Subjects
    self: ClusterMember
    logger: Logger
    trusted?: TrustedKeys
    hasCore?: boolean
  },
): Sealing {
  const { bus, logger, self, subjects, trusted = {}, hasCore = true } = options
  const key = signingKeyOf(newSeed())
  const curve = new CurveKey()
  const isServer = 'serverId' in self
  const keys = new ServerKeys({
    bus,
    subjects,
    self,
    trusted,
    readOwnKey: isServer ? () => key : undefined,
    about: isServer ? { serverId: self.serverId, hasCore, curveKey: curve.publicKey } : undefined,
    logger,
  })
  keys.start()
  t.after(() => keys.stop())
  return {
    keys,
    curve,
    publicKey: key.publicKey,
    calls: new SealedCallSender({ keys, curve, logger }),
    taken: { any: new SealedCallReceiver({ bus, curve }), core: new SealedCallReceiver({ bus, curve, servers: keys }) },
  }
}
