/** `sys/quotas`: rate limits for requests to the core. */
import { path, type Path, Rejection } from '../../engines/framework/engine.ts'
import { boolean, commaList, duration, inPath, number, text, UNPRINTABLE } from '../../engines/framework/fields.ts'
import type { MountTable } from '../mounts/mounts.ts'
import { isGroupBy, type QuotaRule, withoutSlash } from '../quotas/quota-rule.ts'
import type { QuotaConfig, Quotas } from '../quotas/quotas.ts'
import type { OpenStores } from './core-parts.ts'

type QuotaParts = OpenStores<{ readonly quotas: Quotas; readonly mounts: MountTable }>

const NAME = /^\w(?:[\w.-]{0,126}\w)?$/
const EXEMPT_MAX = 1000
const PATH_CHARACTERS_MAX = 4096
/** More requests per interval than any machine can answer */
const RATE_MAX = 1e9

export function quotaPaths(core: QuotaParts): Path[] {
  return [configPath(core), ...rulePaths(core)]
}

function configPath(core: QuotaParts): Path {
  return path({
    pattern: 'quotas/config',
    summary: 'Read or write the settings of all quotas',
    fields: {
      rate_limit_exempt_paths: commaList('Paths without quotas; a trailing `*` matches a prefix'),
      enable_rate_limit_audit_logging: boolean('Whether audit devices record requests that a quota refuses'),
      enable_rate_limit_response_headers: boolean('Whether responses have headers with the remaining requests'),
    },
    read() {
      const { auditsRefusals, exemptPaths, tellsLimits } = core.open.quotas.config
      return {
        data: {
          enable_rate_limit_audit_logging: auditsRefusals,
          enable_rate_limit_response_headers: tellsLimits,
          rate_limit_exempt_paths: exemptPaths,
        },
      }
    },
    async update({
      enable_rate_limit_audit_logging: auditsRefusals,
      enable_rate_limit_response_headers: tellsLimits,
      rate_limit_exempt_paths: exempt,
    }) {
      const change: Partial<QuotaConfig> = {
        ...(auditsRefusals !== undefined && { auditsRefusals }),
        ...(tellsLimits !== undefined && { tellsLimits }),
        ...(exempt && { exemptPaths: parseExemptPaths(exempt) }),
      }
      await core.open.quotas.configure(change)
      return undefined
    },
  })
}

function rulePaths(core: QuotaParts): Path[] {
  const quotas = () => core.open.quotas
  return [
    path({
      pattern: 'quotas/rate-limit',
      summary: 'List the rate limit quotas',
      fields: {},
      list: () => ({
        data: {
          keys: quotas()
            .rules.map(({ name }) => name)
            .sort(),
        },
      }),
    }),
    path({
      pattern: 'quotas/rate-limit/:name',
      summary: 'Read, write or delete a rate limit for all paths, a mount or a path',
      fields: {
        name: inPath('Name of the quota'),
        type: text('Ignored: always `rate-limit`'),
        path: text('Path of a mount or below one; a trailing `*` matches a prefix; empty for all paths', {
          fallback: '',
        }),
        rate: number('Requests per interval, greater than 0', { fallback: 0 }),
        interval: duration('Length of the interval', { fallback: 0 }),
        block_interval: duration('How long a caller above the rate is blocked', { fallback: 0 }),
        role: text('Not supported: a quota for logins of a role', { fallback: '' }),
        group_by: text('`ip` for a limit per address, `none` for one limit for all callers', { fallback: 'ip' }),
        inheritable: boolean('Stored but without effect, because there is one namespace'),
      },
      read({ name }) {
        const rule = quotas().find(name)
        return rule && { data: ruleInfo(rule, core.open.mounts) }
      },
      async update({ block_interval: blockSeconds, name, ...given }) {
        if (!NAME.test(name)) throw new Rejection(400, 'the name of a quota can have letters, digits, "_", "-" and "."')
        const { group_by: groupBy, inheritable, interval, rate } = given
        if (!(rate > 0 && rate <= RATE_MAX)) throw new Rejection(400, "'rate' is invalid")
        if (!isGroupBy(groupBy)) throw new Rejection(400, "'group_by' is invalid: must be ip or none")
        const target = targetOf(core.open.mounts, given.path)
        if (given.role !== '') throw unsupportedRole(given.path)
        const intervalSeconds = interval === 0 ? 1 : interval
        const rest = { rate, intervalSeconds, blockSeconds, groupBy, inheritable: inheritable ?? target.mount === '' }
        await quotas().write({ name, ...target, ...rest })
        return undefined
      },
      async delete({ name }) {
        await quotas().remove(name)
        return undefined
      },
    }),
  ]
}

function ruleInfo(rule: QuotaRule, mounts: MountTable): Record<string, unknown> {
  const mountPath = mounts.byUuid(rule.mount)?.record.path ?? ''
  return {
    type: 'rate-limit',
    name: rule.name,
    path: mountPath + rule.suffix,
    role: '',
    rate: rule.rate,
    interval: rule.intervalSeconds,
    block_interval: rule.blockSeconds,
    group_by: rule.groupBy,
    inheritable: rule.inheritable,
  }
}

/** Throws a Rejection if the path belongs to no mount. */
function targetOf(mounts: MountTable, given: string): Pick<QuotaRule, 'mount' | 'suffix'> {
  const canonical = canonicalPath(given)
  if (canonical === '') return { mount: '', suffix: '' }
  const resolved = mounts.find(canonical)
  if (!resolved) throw new Rejection(400, `invalid mount path ${JSON.stringify(canonical)}`)
  return { mount: resolved.mount.record.uuid, suffix: withoutSlash(resolved.rest) }
}

/** The canonical form of request paths, so that both can be compared. */
function canonicalPath(given: string): string {
  if (given.length > PATH_CHARACTERS_MAX || UNPRINTABLE.test(given)) throw new Rejection(400, 'invalid path')
  const canonical = given.replaceAll(/\/{2,}/g, '/').replace(/^\//, '')
  if (/(?:^|\/)\.\.?(?:\/|$)/.test(canonical)) throw new Rejection(400, 'relative paths not supported')
  return canonical
}

function parseExemptPaths(given: readonly string[]): string[] {
  if (given.length > EXEMPT_MAX) throw new Rejection(400, `rate_limit_exempt_paths: at most ${EXEMPT_MAX}`)
  return [...new Set(given.map((each) => withoutSlash(canonicalPath(each))))]
}

function unsupportedRole(given: string): Rejection {
  return new Rejection(400, `Mount path ${JSON.stringify(given)} does not support use with role-based quotas`)
}
