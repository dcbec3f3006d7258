/** `sys/quotas`: how many requests of one caller the core takes in a time. */
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
/** More than any machine answers. */
const RATE_MAX = 1e9

export function quotaPaths(core: QuotaParts): Path[] {
  return [configPath(core), ...rulePaths(core)]
}

function configPath(core: QuotaParts): Path {
  return path({
    pattern: 'quotas/config',
    summary: 'What holds for all quotas',
    fields: {
      rate_limit_exempt_paths: commaList('Paths that no quota is for; with `*` at its end a prefix'),
      enable_rate_limit_audit_logging: boolean('Whether the audit log has the requests that a quota refuses'),
      enable_rate_limit_response_headers: boolean('Whether answers tell how many requests are left'),
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
        ...(exempt && { exemptPaths: checkedExempt(exempt) }),
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
      summary: 'The names of the rate-limit quotas',
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
      summary: 'How many requests a caller has in a time: everywhere, at a mount, or at a path',
      fields: {
        name: inPath('Name of the quota'),
        type: text('Not looked at: there is `rate-limit`'),
        path: text('Path of a mount, or a path below one, with `*` at its end a prefix; empty for everything', {
          fallback: '',
        }),
        rate: number('Requests in an interval, more than 0', { fallback: 0 }),
        interval: duration('The interval', { fallback: 0 }),
        block_interval: duration('How long a caller that has used up its requests gets none at all', { fallback: 0 }),
        role: text('Not offered: a quota for the logins of a role', { fallback: '' }),
        group_by: text('`ip`: each address has its own requests; `none`: all callers share them', { fallback: 'ip' }),
        inheritable: boolean('Kept for clients that set it: there are no other namespaces'),
      },
      read({ name }) {
        const rule = quotas().find(name)
        return rule && { data: shown(rule, core.open.mounts) }
      },
      async update({ block_interval: blockSeconds, name, ...given }) {
        if (!NAME.test(name)) throw new Rejection(400, 'the name of a quota is letters, digits, "_", "-" and "."')
        const { group_by: groupBy, inheritable, interval, rate } = given
        if (!(rate > 0 && rate <= RATE_MAX)) throw new Rejection(400, "'rate' is invalid")
        if (!isGroupBy(groupBy)) throw new Rejection(400, "'group_by' is invalid: it is ip or none")
        const at = placeOf(core.open.mounts, given.path)
        if (given.role !== '') throw roleRefused(given.path)
        const intervalSeconds = interval === 0 ? 1 : interval
        const rest = { rate, intervalSeconds, blockSeconds, groupBy, inheritable: inheritable ?? at.mount === '' }
        await quotas().write({ name, ...at, ...rest })
        return undefined
      },
      async delete({ name }) {
        await quotas().remove(name)
        return undefined
      },
    }),
  ]
}

function shown(rule: QuotaRule, mounts: MountTable): Record<string, unknown> {
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

/** The mount that a path belongs to, and the rest of it. Throws a Rejection where there is no such mount. */
function placeOf(mounts: MountTable, given: string): Pick<QuotaRule, 'mount' | 'suffix'> {
  const canonical = canonicalPath(given)
  if (canonical === '') return { mount: '', suffix: '' }
  const place = mounts.find(canonical)
  if (!place) throw new Rejection(400, `invalid mount path ${JSON.stringify(canonical)}`)
  return { mount: place.mount.record.uuid, suffix: withoutSlash(place.rest) }
}

/** As the path of a request is read, so that the two can be compared. */
function canonicalPath(given: string): string {
  if (given.length > PATH_CHARACTERS_MAX || UNPRINTABLE.test(given)) throw new Rejection(400, 'this is no path')
  const canonical = given.replaceAll(/\/{2,}/g, '/').replace(/^\//, '')
  if (/(?:^|\/)\.\.?(?:\/|$)/.test(canonical)) throw new Rejection(400, 'relative paths not supported')
  return canonical
}

function checkedExempt(given: readonly string[]): string[] {
  if (given.length > EXEMPT_MAX) throw new Rejection(400, `rate_limit_exempt_paths: at most ${EXEMPT_MAX}`)
  return [...new Set(given.map((each) => withoutSlash(canonicalPath(each))))]
}

function roleRefused(given: string): Rejection {
  return new Rejection(400, `Mount path ${JSON.stringify(given)} does not support use with role-based quotas`)
}
