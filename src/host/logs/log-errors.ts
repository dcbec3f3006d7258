/**
 * The errors for a request of logs. 404: the log does not exist, no log matches a selection, or the task has not started. 400: the task
 * is unknown, or the request selects too many logs for a cursor.
 */
import { Refusal } from '../../platform/errors.ts'

interface LogIdentity {
  readonly task: string
  readonly type: string
}

export function logNotFound({ task, type }: LogIdentity): Refusal {
  return new Refusal('not_found', `log entry for task "${task}" and log type "${type}" not found`)
}

/** For a selection of several logs. */
export function noLogFound({ task, type }: LogIdentity): Refusal {
  return new Refusal('not_found', `no log found for task "${task}" and log type "${type}"`)
}

export function taskNotStarted(task: string): Refusal {
  return new Refusal('not_found', `task "${task}" not started yet. No logs available`)
}

export function unknownTask(task: string): Refusal {
  return new Refusal('invalid_request', `unknown task name ${JSON.stringify(task)}`)
}

/** For a resumable stream of more logs than fit into one cursor. */
export function tooManyLogs(count: number, limit: number): Refusal {
  return new Refusal(
    'invalid_request',
    `a cursor can have at most ${limit} logs, and the request selects ${count}: select one type or one task, or omit cursor (outpost logs: -no-resume)`,
  )
}
