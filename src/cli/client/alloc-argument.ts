/**
 * The allocation and task of a command line. Endpoints accept full IDs only. An ID prefix is resolved by the addressed agent or server,
 * or by the directories of this host if `-data-dir` is given, or if no address is given and a directory matches (docs/decisions/094).
 */
import { isUuid } from '../../platform/schema.ts'
import { allocRoot, matchAllocations } from '../../supervisor/alloc-directory.ts'
import { dataDirOption, findOne } from './local-allocations.ts'
import type { CommandIo, Operands } from '../framework/define-command.ts'
import { CommandError } from '../framework/define-command.ts'
import { fieldsOf } from '../output/json.ts'
import type { AgentTarget } from './agent-target.ts'
import { AgentRefusal, requestJson } from './http-client.ts'
import { findAllocation } from './id-prefix.ts'

export const allocOptions = { 'data-dir': dataDirOption }

export const allocOperand: Operands = {
  shown: 'ALLOC',
  min: 1,
  max: 1,
  hint: 'an allocation ID or ID prefix',
}

/** The full ID. Throws CommandError without a match, and for several. */
export async function allocationId(
  given: string,
  values: { readonly 'data-dir': string | undefined },
  target: AgentTarget,
  io: CommandIo,
): Promise<string> {
  if (isUuid(given)) return given.toLowerCase()
  const root = allocRoot(values['data-dir'], io.env)
  const isLocal = values['data-dir'] !== undefined || (target.from === undefined && hasMatch(root, given))
  return isLocal ? findOne(root, given, io).id : findAllocation(target, given, io)
}

/** False also for a directory that this user may not list: the agent resolves the prefix then. */
function hasMatch(root: string, given: string): boolean {
  try {
    return given !== '' && matchAllocations(root, given).length > 0
  } catch {
    return false
  }
}

/**
 * The only task of an allocation, from the names of its log files, which require the same permission as the logs. Without log files or
 * permission, from the statistics. Throws CommandError for several tasks.
 */
export async function onlyTask(target: AgentTarget, id: string): Promise<string> {
  const tasks = (await tasksWithLogs(target, id)) ?? (await tasksWithStats(target, id))
  const [first, ...others] = tasks
  if (first === undefined) throw new CommandError(`allocation ${id} has no log yet: specify its task`)
  if (others.length === 0) return first
  throw new CommandError(`allocation ${id} has several tasks: specify one of ${tasks.join(', ')}, or use -all`)
}

async function tasksWithLogs(target: AgentTarget, id: string): Promise<readonly string[] | undefined> {
  try {
    const listed = await requestJson(target, { path: `/v1/client/fs/ls/${id}`, query: { path: 'alloc/logs' } })
    if (!Array.isArray(listed)) return undefined
    const names = listed.map((entry: unknown) => fieldsOf(entry).text('Name'))
    const tasks = new Set(names.flatMap((name) => logName(name)?.task ?? []))
    return tasks.size === 0 ? undefined : [...tasks].sort()
  } catch (error) {
    if (error instanceof AgentRefusal && error.status === 403) return undefined
    if (error instanceof AgentRefusal && error.status === 404 && !/allocation/i.test(error.message)) return undefined
    throw error
  }
}

async function tasksWithStats(target: AgentTarget, id: string): Promise<readonly string[]> {
  const answer = fieldsOf(await requestJson(target, { path: `/v1/client/allocation/${id}/stats` }))
  return answer.names('Tasks').sort()
}

export interface LogName {
  readonly task: string
  readonly type: 'stdout' | 'stderr'
}

/** Task and type in the path of a log file; undefined for other files. */
export function logName(file: string): LogName | undefined {
  const match = /([^/]+)\.(stdout|stderr)\.\d+$/.exec(file)
  if (!match?.[1]) return undefined
  return { task: match[1], type: match[2] === 'stderr' ? 'stderr' : 'stdout' }
}
