/** Import this first: the short times, and a node that is waited for has to send its least amount every second and a half. */
import { SHORT } from './short-timings.ts'

process.env['OUTPOST_TIMINGS'] = JSON.stringify({ ...SHORT, minimumRatePeriodMs: 1500 })
