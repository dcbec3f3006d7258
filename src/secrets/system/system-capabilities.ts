/** `sys/capabilities*` and `sys/internal/ui/resultant-acl`: the permissions of a token. */
import type { EngineCall, Path, Reply } from '../../engines/framework/engine.ts'
import { oneError, path, Rejection } from '../../engines/framework/engine.ts'
import { aliasField, commaList, text } from '../../engines/framework/fields.ts'
import { runSliced, type SlicedWork } from '../../platform/sliced-work.ts'
import type { Acl, AclRule } from '../policies/acl.ts'
import type { TokenStore } from '../tokens/token-store.ts'
import type { PolicyEvaluator, OpenStores } from './core-parts.ts'

/** Each path costs about a microsecond and a line of the answer. */
const PATHS_MAX = 10_000
/** 10,000 paths of 100 characters. Parsing more would delay other requests. */
const BODY_CHARACTERS_MAX = 1 << 20

const PATHS = {
  paths: commaList('Paths without a leading slash'),
  path: aliasField(commaList('Deprecated: use `paths`'), 'paths'),
}

export function capabilityPaths(core: PolicyEvaluator & OpenStores<{ tokens: TokenStore }>): Path[] {
  return [
    path({
      pattern: 'capabilities-self',
      bodyCharactersMax: BODY_CHARACTERS_MAX,
      summary: 'Read the capabilities of the calling token on paths',
      fields: { ...PATHS, token: text('Ignored: the calling token is used') },
      update: (input, call) => capabilitiesReply(core, core.aclOf(call.caller), pathsOf(input), call),
    }),
    path({
      pattern: 'capabilities',
      bodyCharactersMax: BODY_CHARACTERS_MAX,
      summary: 'Read the capabilities of a token on paths',
      fields: { ...PATHS, token: text('The token') },
      update(input, call) {
        const { nowMs } = call
        const paths = pathsOf(input)
        const entry = input.token === undefined ? undefined : core.open.tokens.find(input.token, nowMs)
        if (!entry) throw new Rejection(400, oneError('invalid token'))
        return capabilitiesReply(core, core.aclOf(entry), paths, call)
      },
    }),
    path({
      pattern: 'capabilities-accessor',
      bodyCharactersMax: BODY_CHARACTERS_MAX,
      summary: 'Read the capabilities of a token on paths by its accessor',
      fields: { ...PATHS, accessor: text('Accessor of the token') },
      update(input, call) {
        const { nowMs } = call
        const paths = pathsOf(input)
        const entry = input.accessor === undefined ? undefined : core.open.tokens.findByAccessor(input.accessor, nowMs)
        if (!entry) throw new Rejection(400, oneError('invalid accessor'))
        return capabilitiesReply(core, core.aclOf(entry), paths, call)
      },
    }),
    path({
      pattern: 'internal/ui/resultant-acl',
      summary: 'Read all policy rules that apply to the calling token, merged',
      fields: {},
      read: (_input, { caller }) => ({ data: resultantAcl(core.aclOf(caller)) }),
    }),
  ]
}

function pathsOf({
  paths,
  path: older,
}: {
  paths: readonly string[] | undefined
  path: readonly string[] | undefined
}) {
  const all = paths?.length ? paths : (older ?? [])
  if (all.length === 0) throw new Rejection(400, 'paths must be supplied')
  if (all.length > PATHS_MAX) throw new Rejection(400, `more than ${PATHS_MAX} paths: send several requests`)
  return all
}

/** The cost of a decision in units of `platform/sliced-work.ts` */
const DECISION_COST = 4

async function capabilitiesReply(
  core: PolicyEvaluator,
  acl: Acl,
  paths: readonly string[],
  call: EngineCall,
): Promise<Reply> {
  const capabilities = await runSliced(decisions(core, acl, paths), call)
  const [only] = capabilities
  const single = capabilities.length === 1 && only ? [['capabilities', only[1]] as const] : []
  return { data: Object.fromEntries([...single, ...capabilities]), flattened: true }
}

/** By the paths as they were requested. The decisions are about their canonical forms. */
function* decisions(
  core: PolicyEvaluator,
  acl: Acl,
  paths: readonly string[],
): SlicedWork<(readonly [string, readonly string[]])[]> {
  const results: (readonly [string, readonly string[]])[] = []
  for (const given of paths) {
    const { folds, path: canonical } = core.canonical(given.replace(/^\/+/, ''))
    results.push([given, acl.capabilities(canonical, folds)])
    yield DECISION_COST
  }
  return results
}

/** Every rule in the format of Vault's UI: exact paths, and prefixes without the trailing `*`. */
function resultantAcl(acl: Acl): Record<string, unknown> {
  if (acl.root) return { root: true }
  const exact: [string, object][] = []
  const glob: [string, object][] = []
  for (const rule of [...acl.rules, ...acl.barriers]) {
    const { kind, body, text: whole } = rule.pattern
    if (kind === 'exact') exact.push([body, ruleInfo(rule)])
    else glob.push([kind === 'prefix' ? body : whole, ruleInfo(rule)])
  }
  return { root: false, exact_paths: Object.fromEntries(exact), glob_paths: Object.fromEntries(glob) }
}

function ruleInfo({ capabilities, maxWrapSeconds, minWrapSeconds, parameters }: AclRule): object {
  const { allowed, denied, required } = parameters
  return {
    capabilities: capabilities.size > 0 ? [...capabilities].sort() : ['deny'],
    ...(minWrapSeconds > 0 && { min_wrapping_ttl: minWrapSeconds }),
    ...(maxWrapSeconds > 0 && { max_wrapping_ttl: maxWrapSeconds }),
    ...(allowed?.size && { allowed_parameters: Object.fromEntries(allowed) }),
    ...(denied?.size && { denied_parameters: Object.fromEntries(denied) }),
    ...(required.length > 0 && { required_parameters: required }),
  }
}
