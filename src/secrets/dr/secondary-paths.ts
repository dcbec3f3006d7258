/**
 * What operators of a DR secondary do. To become one takes a token of the cluster that it was; from then on that token is
 * refused, and everything takes an operation token in the body of the request.
 */
import { type EngineCall, path, type Path, type PathDeclaration, Rejection } from '../../engines/framework/engine.ts'
import { boolean, type EngineFields, text, textList } from '../../engines/framework/fields.ts'
import { isBatch } from '../tokens/token-batch.ts'
import { bundleOf } from './activation-token.ts'
import type { DrReplication } from './dr-replication.ts'
import type { OperationToken } from './operation-token.ts'
import { clusterAddress, DISABLING, REINDEX, REINDEXING, reindexOf, sideIn, told } from './primary-paths.ts'
import { type Doorway, type ReplicationParts, sideOf } from './dr-parts.ts'
import type { StandbyRights } from './dr-token-auth.ts'

const FOUND =
  'Vault has successfully found secondary information; it may take a while to perform setup tasks. Vault will be unavailable until these tasks and initial sync complete.'
const PROMOTING =
  'This cluster is being promoted to a replication primary. Vault will be unavailable for a brief period and will resume service shortly.'
const ADDRESSES_MAX = 100

/** What a path declares that is served by a secondary, whatever its state, to callers that it cannot tell apart. */
export const ON_SECONDARY = {
  unauthenticated: true,
  whileSealed: true,
  onSecondary: true,
} satisfies Partial<PathDeclaration<EngineFields>>

export const OPERATION_TOKEN = {
  dr_operation_token: text('The operation token of this secondary', { fallback: '' }),
}

const PRIMARY = {
  token: text('The activation token', { fallback: '' }),
  primary_api_addr: text('The API of the primary as a URL, where it is another one than the token names', {
    fallback: '',
  }),
  ca_file: text('PEM file, on this server, of the authority of the primary’s API', { fallback: '' }),
  ca_path: text('Directory of such files', { fallback: '' }),
  ca_cert: text('The PEM text itself', { fallback: '' }),
  insecure: boolean('Also unwrap the token over plain HTTP to a primary on another host', { fallback: false }),
}

export interface SecondaryAccess {
  readonly token: OperationToken
  readonly rights: StandbyRights
}

export function secondaryPaths(core: ReplicationParts, access: SecondaryAccess, { tell }: Doorway): Path[] {
  return [...joiningPaths(core, access, tell), ...standingPaths(access, tell), ...treePaths(access)]
}

type Tell = Doorway['tell']

function joiningPaths(core: ReplicationParts, { rights }: SecondaryAccess, tell: Tell): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/generate-public-key',
      summary: 'A public key for secondary-token: the activation token is then sealed to this server',
      onSecondary: true,
      sudo: true,
      fields: {},
      async update(_input, call) {
        const side = sideOf(core)
        if (side?.dr.mode === 'secondary') await rights.require(call, 'update', true)
        if (!side) throw new Rejection(400, 'this server does not replicate')
        return { data: { secondary_public_key: await side.dr.generatePublicKey() } }
      },
    }),
    path({
      pattern: 'replication/dr/secondary/enable',
      summary: 'Make this cluster a DR secondary: everything that it has gives way to what the primary has',
      sudo: true,
      fields: PRIMARY,
      async update(input, call) {
        const side = sideIn(core, 'disabled')
        if (input.token === '') throw new Rejection(400, 'token must be given: an activation token of the primary')
        await side.dr.enableSecondary(await bundleOf(side, input, core.now()))
        tell('this cluster becomes a DR secondary', call)
        return told(FOUND)
      },
    }),
  ]
}

function standingPaths(access: SecondaryAccess, tell: Tell): Path[] {
  return [...rolePaths(access, tell), ...primaryOfPaths(access, tell)]
}

function rolePaths(access: SecondaryAccess, tell: Tell): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/promote',
      summary: 'Make this secondary the primary',
      ...ON_SECONDARY,
      fields: {
        ...OPERATION_TOKEN,
        primary_cluster_addr: text('Where secondaries connect to, host:port', { fallback: '' }),
        force: boolean('Also where something may be missing that the primary had', { fallback: false }),
      },
      async update({ dr_operation_token: given, force, primary_cluster_addr: address }, call) {
        const { dr } = await allowed(access, given, call)
        await dr.promote({ primaryClusterAddr: clusterAddress(address), force })
        await access.token.remove()
        const authorizedBy = isBatch(given) ? 'batch token' : 'operation token'
        tell('this DR secondary was promoted to primary', call, { force: String(force), authorized_by: authorizedBy })
        return told(PROMOTING)
      },
    }),
    path({
      pattern: 'replication/dr/secondary/disable',
      summary: 'End replication: this cluster goes on by itself with what it has',
      ...ON_SECONDARY,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: given }, call) {
        const { dr } = await allowed(access, given, call)
        await dr.disable()
        await access.token.remove()
        tell('replication was disabled on this DR secondary', call)
        return told(DISABLING)
      },
    }),
  ]
}

function primaryOfPaths(access: SecondaryAccess, tell: Tell): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/update-primary',
      summary: 'Give this secondary another primary of its set; nothing is wiped',
      ...ON_SECONDARY,
      fields: {
        ...OPERATION_TOKEN,
        ...PRIMARY,
        update_primary_addrs: textList('Addresses of the primary’s cluster port; the first that answers is taken'),
      },
      async update({ dr_operation_token: given, update_primary_addrs: addresses = [], ...input }, call) {
        const side = await allowed(access, given, call)
        await side.dr.updatePrimary(
          typeof call.data['token'] === 'string' || addresses.length === 0
            ? await byToken(side, { ...input, addresses }, call)
            : { addresses: checkedAddresses(addresses) },
        )
        tell('this DR secondary has another primary', call)
        return told(FOUND)
      },
    }),
    path({
      pattern: 'replication/dr/secondary/operation-token/delete',
      summary: 'End the operation token',
      ...ON_SECONDARY,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: given }, call) {
        access.token.check(given)
        await access.token.remove()
        tell('the operation token of this DR secondary was deleted', call)
        return undefined
      },
    }),
  ]
}

function treePaths(access: SecondaryAccess): Path[] {
  return [
    path({
      pattern: 'replication/dr/secondary/reindex',
      summary: 'Make the Merkle tree of this secondary anew from what is stored, while it follows the primary',
      ...ON_SECONDARY,
      fields: { ...OPERATION_TOKEN, ...REINDEX },
      async update({ dr_operation_token: given, ...input }, call) {
        const { dr } = await allowed(access, given, call)
        await dr.reindex(reindexOf(input))
        return told(REINDEXING)
      },
    }),
    path({
      pattern: 'replication/dr/secondary/merkle-check',
      summary: 'Compare the Merkle tree of this secondary with what is stored',
      ...ON_SECONDARY,
      fields: OPERATION_TOKEN,
      async update({ dr_operation_token: given }, call) {
        const { dr } = await allowed(access, given, call)
        return { data: await dr.merkleCheck() }
      },
    }),
  ]
}

/** Rejects unless the operation token is valid, or a batch token of the primary that stands in its place. */
async function allowed({ rights, token }: SecondaryAccess, given: string, call: EngineCall) {
  const side = token.side()
  if (given !== '' && (await rights.isBatchAllowed(given, call))) return side
  return token.check(given)
}

type NewPrimary = Parameters<DrReplication['updatePrimary']>[0]
type TokenInput = Parameters<typeof bundleOf>[1] & { readonly addresses: readonly string[] }

async function byToken(side: Parameters<typeof bundleOf>[0], input: TokenInput, call: EngineCall): Promise<NewPrimary> {
  const isGiven = typeof call.data['token'] === 'string'
  if (isGiven && input.addresses.length > 0) {
    throw new Rejection(400, 'token and update_primary_addrs exclude each other: give one of them')
  }
  if (!isGiven) throw new Rejection(400, 'token or update_primary_addrs must be given; token "" forgets the primary')
  return input.token === '' ? { forget: true } : { bundle: await bundleOf(side, input, call.wallMs) }
}

function checkedAddresses(addresses: readonly string[]): readonly string[] {
  if (addresses.length > ADDRESSES_MAX) throw new Rejection(400, `update_primary_addrs: at most ${ADDRESSES_MAX}`)
  return addresses.map((address) => {
    if (address === '') throw new Rejection(400, 'update_primary_addrs: an address is empty')
    return clusterAddress(address)
  })
}
