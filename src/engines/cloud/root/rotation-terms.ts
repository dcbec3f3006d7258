/** The terms of a rotation: a period, or a cron expression in UTC with a window. `rotate-root.ts` rotates by them. */
import { Cron } from 'croner'
import { messageOf } from '../../../platform/errors.ts'
import { Rejection } from '../../framework/engine.ts'

const PERIOD_MIN_SECONDS = 10
const WINDOW_MIN_SECONDS = 3600
const EXPRESSION_LENGTH_MAX = 256

export interface RotationTerms {
  /** Empty: none. */
  readonly rotationSchedule: string
  readonly rotationWindowSeconds: number
  readonly rotationPeriodSeconds: number
}

/** Throws a Rejection (400) for terms that conflict. */
export function checkRotation(terms: RotationTerms): void {
  const { rotationPeriodSeconds: period, rotationSchedule: schedule, rotationWindowSeconds: window } = terms
  if (schedule !== '' && period !== 0) {
    throw new Rejection(
      400,
      'mutually exclusive fields rotation_schedule and rotation_period were both specified; only one of them can be provided',
    )
  }
  if (schedule !== '') cronOf(schedule)
  if (window !== 0 && period !== 0) throw new Rejection(400, 'rotation_window does not apply to period')
  if (window !== 0 && schedule === '') {
    throw new Rejection(400, 'cannot use rotation_window without rotation_schedule')
  }
  if (window !== 0 && window < WINDOW_MIN_SECONDS) {
    throw unregistered(`rotation_window must be ${WINDOW_MIN_SECONDS} seconds or more`)
  }
  if (period !== 0 && period < PERIOD_MIN_SECONDS) {
    throw unregistered(`rotation_period must be ${PERIOD_MIN_SECONDS} seconds or more`)
  }
}

function unregistered(why: string): Rejection {
  return new Rejection(400, `error registering rotation job: ${why}`)
}

/** Five fields, no descriptors, days of the week 0 to 6. Throws a Rejection (400). */
function cronOf(expression: string): Cron {
  if (expression.length > EXPRESSION_LENGTH_MAX) throw unparsed(`more than ${EXPRESSION_LENGTH_MAX} characters`)
  const fields = expression.trim().split(/\s+/)
  if (fields.length !== 5) throw unparsed(`expected exactly 5 fields, found ${fields.length}: [${fields.join(' ')}]`)
  const [weekday = ''] = fields.slice(4)
  if (/(^|[,-])7/.test(weekday)) throw unparsed('end of range (7) above maximum (6)')
  let cron: Cron
  try {
    cron = new Cron(fields.join(' ').replaceAll('?', '*'), { timezone: 'UTC', paused: true, mode: '5-part' })
  } catch (error) {
    throw unparsed(messageOf(error))
  }
  if (!cron.nextRun(new Date(0))) throw unparsed('no such date')
  return cron
}

function unparsed(why: string): Rejection {
  return new Rejection(400, `failed to parse provided rotation_schedule: ${why}`)
}

/** The next rotation; undefined for never. `fromMs` is the last rotation, or the time at which the terms were set. */
export function nextRotationMs(terms: RotationTerms, fromMs: number): number | undefined {
  if (terms.rotationPeriodSeconds > 0) return fromMs + terms.rotationPeriodSeconds * 1000
  if (terms.rotationSchedule === '') return undefined
  return cronOf(terms.rotationSchedule).nextRun(new Date(fromMs))?.getTime()
}

/** Whether a rotation that was due at `dueMs` may still start within its window. */
export function isInWindow({ rotationWindowSeconds }: RotationTerms, dueMs: number, nowMs: number): boolean {
  return rotationWindowSeconds === 0 || nowMs < dueMs + rotationWindowSeconds * 1000
}
