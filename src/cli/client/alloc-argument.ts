/**
 * The allocation and the task that a command line means. Endpoints know allocations by their full IDs only. The beginning of
 * one is completed by the agent or server that is addressed; by the directories of this host where `-data-dir` names
 * them, or where no address is given and one of them matches (docs/decisions/094).
 */
import { isUuid } from '../../platform/schema.ts'
import { allocRoot, dataDirOption, matchAllocations } from '../../supervisor/alloc-directory.ts'
import { findOne } from './local-allocations.ts'
import type { CommandIo, Operands } from '../framework/command-shape.ts'
import { CommandError } from '../framework/command-shape.ts'
import { fieldsOf } from '../output/answer.ts'
import type { AgentTarget } from './agent-target.ts'
import { RefusedByAgent, requestJson } from './http-client.ts'
import { findAllocation } from './id-prefix.ts'

export const allocOptions = { 'data-dir': dataDirOption }

export const allocOperand: Operands = {
  shown: 'ALLOC',
  min: 1,
  max: 1,
  missing: 'which allocation? give its ID or the beginning of it',
}

/** The full ID. Throws CommandError when it is not one and there is no match, or several. */
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

/** False also for a directory that this user may not list: its agent can be asked. */
function hasMatch(root: string, given: string): boolean {
  try {
    return given !== '' && matchAllocations(root, given).length > 0
  } catch {
    return false
  }
}

/**
 * The only task of an allocation. Its log files tell in one request, which needs no more than reading them does; where
 * that is not permitted, or there is no log yet, the statistics do. Throws CommandError when there are several.
 */
export async function onlyTask(target: AgentTarget, id: string): Promise<string> {
  const tasks = (await tasksWithLogs(target, id)) ?? (await tasksWithStats(target, id))
  const [first, ...others] = tasks
  if (first === undefined) throw new CommandError(`allocation ${id} has no log yet, or name its task`)
  if (others.length === 0) return first
  throw new CommandError(`allocation ${id} has the tasks ${tasks.join(', ')}: name one of them, or give -all`)
}

async function tasksWithLogs(target: AgentTarget, id: string): Promise<readonly string[] | undefined> {
  try {
    const listed = await requestJson(target, { path: `/v1/client/fs/ls/${id}`, query: { path: 'alloc/logs' } })
    if (!Array.isArray(listed)) return undefined
    const names = listed.map((entry: unknown) => fieldsOf(entry).text('Name'))
    const tasks = new Set(names.flatMap((name) => logName(name)?.task ?? []))
    return tasks.size === 0 ? undefined : [...tasks].sort()
  } catch (error) {
    if (error instanceof RefusedByAgent && error.status === 403) return undefined
    if (error instanceof RefusedByAgent && error.status === 404 && !/allocation/i.test(error.message)) return undefined
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

/** Task and type of a log's file name, with or without its directory; undefined when it is not one's. */
export function logName(file: string): LogName | undefined {
  const match = /([^/]+)\.(stdout|stderr)\.\d+$/.exec(file)
  if (!match?.[1]) return undefined
  return { task: match[1], type: match[2] === 'stderr' ? 'stderr' : 'stdout' }
}
