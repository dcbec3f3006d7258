/** Import this first: sets the short timings, and a minimum rate of nodes that is checked every second and a half. */
import { SHORT } from './short-timings.ts'

process.env['OUTPOST_TIMINGS'] = JSON.stringify({ ...SHORT, minimumRatePeriodMs: 1500 })
