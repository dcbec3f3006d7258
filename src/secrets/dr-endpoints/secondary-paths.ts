/**
 * The operator endpoints of a DR secondary. Enabling it requires a token of the cluster before. After that the cluster's tokens are
 * refused, and operations require an operation token in the body of the request.
 */
import { type EngineCall, path, type Path, type PathDeclaration, Rejection } from '../../engines/framework/engine.ts'
import { boolean, type EngineFields, text, textList } from '../../engines/framework/fields.ts'
import { isBatch } from '../tokens/token-batch.ts'
import { resolveBundle } from './activation-token.ts'
import type { DrCore, DrReplication, EventLog } from './dr-side.ts'
import type { OperationToken } from './operation-token.ts'
import {
  clusterAddress,
  DISABLING,
  NOT_CONFIGURED,
  REINDEX,
  REINDEXING,
  reindexOf,
  requireMode,
  warningReply,
} from './primary-paths.ts'
import type { DrTokenAuth } from './dr-token-auth.ts'

const FOUND =
  'Vault has successfully found secondary information; it may take a while to perform setup tasks. Vault will be unavailable until these tasks and initial sync complete.'
const PROMOTING =
  'This cluster is being promoted to a replication primary. Vault will be unavailable for a brief period and will resume service shortly.'
const ADDRESSES_MAX = 100

/** The declaration of a path that a secondary serves in every state without authenticating a token of the core. */
export const ON_SECONDARY = {
  unauthenticated: true,
  whileSealed: true,
  onSecondary: true,
} satisfies Partial<PathDeclaration<EngineFields>>

export const OPERATION_TOKEN = {
  dr_operation_token: text('Operation token of this secondary', { fallback: '' }),
}

const PRIMARY = {
  token: text('Activation token', { fallback: '' }),
  primary_api_addr: text('URL of the API of the primary, if it differs from the address in the token', {
    fallback: '',
  }),
  ca_file: text('PEM file on this server with the CA of the API of the primary', { fallback: '' }),
  ca_path: text('Directory with PEM files of the CA on this server', { fallback: '' }),
  ca_cert: text('PEM text of the CA', { fallback: '' }),
  insecure: boolean('Allow plain HTTP to a primary on another host', { fallback: false }),
}

export interface SecondaryAccess {
  readonly operationToken: OperationToken
  readonly tokenAuth: DrTokenAuth
}

export function secondaryPaths(core: DrCore, access: SecondaryAccess, logEvent: EventLog): Path[] {
  return [
    ...enablePaths(core, access, logEvent),
    ...rolePaths(access, logEvent),
    ...updatePaths(access, logEvent),
    ...treePaths(access),
  ]
}

function enablePaths(core: DrCore, { tokenAuth }: SecondaryAccess, logEvent: EventLog): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/generate-public-key',
      summary: 'Generate a public key to which activation tokens can be encrypted',
      onSecondary: true,
      sudo: true,
      fields: {},
      async update(_input, call) {
        const side = core.options.replication
        if (side?.dr.mode === 'secondary') await tokenAuth.require(call, 'update', true)
        if (!side) throw new Rejection(400, NOT_CONFIGURED)
        return { data: { secondary_public_key: await side.dr.generatePublicKey() } }
      },
    }),
    path({
      pattern: 'replication/dr/secondary/enable',
      summary: 'Enable DR replication with this cluster as a secondary, which deletes its data',
      sudo: true,
      fields: PRIMARY,
      async update(input, call) {
        const side = requireMode(core, 'disabled')
        if (input.token === '') throw new Rejection(400, 'missing token: send an activation token of the primary')
        await side.dr.enableSecondary(await resolveBundle(side, input, core.now()))
        logEvent('DR replication enabled as secondary', call)
        return warningReply(FOUND)
      },
    }),
  ]
}

function rolePaths(access: SecondaryAccess, logEvent: EventLog): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/promote',
      summary: 'Promote this secondary to the primary',
      ...ON_SECONDARY,
      fields: {
        ...OPERATION_TOKEN,
        primary_cluster_addr: text('Cluster address for secondaries as host:port', { fallback: '' }),
        force: boolean('Promote even if commits of the primary may be lost', { fallback: false }),
      },
      async update({ dr_operation_token: given, force, primary_cluster_addr: address }, call) {
        const { dr } = await authorize(access, given, call)
        await dr.promote({ primaryClusterAddr: clusterAddress(address), force })
        await access.operationToken.remove()
        const authorizedBy = isBatch(given) ? 'batch token' : 'operation token'
        logEvent('DR secondary promoted to primary', call, { force: String(force), authorized_by: authorizedBy })
        return warningReply(PROMOTING)
      },
    }),
    path({
      pattern: 'replication/dr/secondary/disable',
      summary: 'Disable DR replication on this secondary, which keeps its data',
      ...ON_SECONDARY,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: given }, call) {
        const { dr } = await authorize(access, given, call)
        await dr.disable()
        await access.operationToken.remove()
        logEvent('DR replication disabled on secondary', call)
        return warningReply(DISABLING)
      },
    }),
  ]
}

function updatePaths(access: SecondaryAccess, logEvent: EventLog): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/update-primary',
      summary: 'Connect this secondary to another primary without deleting data',
      ...ON_SECONDARY,
      fields: {
        ...OPERATION_TOKEN,
        ...PRIMARY,
        update_primary_addrs: textList('Cluster addresses of the primary; the first that responds is used'),
      },
      async update({ dr_operation_token: given, update_primary_addrs: addresses = [], ...input }, call) {
        const side = await authorize(access, given, call)
        await side.dr.updatePrimary(
          typeof call.data['token'] === 'string' || addresses.length === 0
            ? await byToken(side, { ...input, addresses }, call)
            : { addresses: parseAddresses(addresses) },
        )
        logEvent('primary of DR secondary updated', call)
        return warningReply(FOUND)
      },
    }),
    path({
      pattern: 'replication/dr/secondary/operation-token/delete',
      summary: 'Delete the operation token',
      ...ON_SECONDARY,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: given }, call) {
        access.operationToken.check(given)
        await access.operationToken.remove()
        logEvent('DR operation token deleted', call)
        return undefined
      },
    }),
  ]
}

function treePaths(access: SecondaryAccess): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/reindex',
      summary: 'Rebuild the Merkle tree of this secondary in the background',
      ...ON_SECONDARY,
      fields: { ...OPERATION_TOKEN, ...REINDEX },
      async update({ dr_operation_token: given, ...input }, call) {
        const { dr } = await authorize(access, given, call)
        await dr.reindex(reindexOf(input))
        return warningReply(REINDEXING)
      },
    }),
    path({
      pattern: 'replication/dr/secondary/merkle-check',
      summary: 'Compare the Merkle tree of this secondary with the stored entries',
      ...ON_SECONDARY,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: given }, call) {
        const { dr } = await authorize(access, given, call)
        return { data: await dr.merkleCheck() }
      },
    }),
  ]
}

/** Rejects unless `given` is the operation token or an authorized batch token of the primary. */
async function authorize({ operationToken, tokenAuth }: SecondaryAccess, given: string, call: EngineCall) {
  const side = operationToken.requireSecondary()
  if (given !== '' && (await tokenAuth.isBatchAllowed(given, call))) return side
  return operationToken.check(given)
}

type PrimaryUpdate = Parameters<DrReplication['updatePrimary']>[0]
type TokenInput = Parameters<typeof resolveBundle>[1] & { readonly addresses: readonly string[] }

async function byToken(
  side: Parameters<typeof resolveBundle>[0],
  input: TokenInput,
  call: EngineCall,
): Promise<PrimaryUpdate> {
  const isGiven = typeof call.data['token'] === 'string'
  if (isGiven && input.addresses.length > 0) {
    throw new Rejection(400, 'token and update_primary_addrs are mutually exclusive: send one of them')
  }
  if (!isGiven) throw new Rejection(400, 'missing token or update_primary_addrs; an empty token removes the primary')
  return input.token === '' ? { forget: true } : { bundle: await resolveBundle(side, input, call.wallMs) }
}

function parseAddresses(addresses: readonly string[]): readonly string[] {
  if (addresses.length > ADDRESSES_MAX) throw new Rejection(400, `update_primary_addrs: at most ${ADDRESSES_MAX}`)
  return addresses.map((address) => {
    if (address === '') throw new Rejection(400, 'update_primary_addrs: an address is empty')
    return clusterAddress(address)
  })
}
