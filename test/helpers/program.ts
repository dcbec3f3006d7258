/**
 * The launcher that tests start: that of the bundle that `scripts/test.ts` built, which starts in half the time, or that
 * of the sources if a test file runs alone.
 */
import { resolve } from 'node:path'

export const OUTPOST = process.env['OUTPOST_TEST_PROGRAM'] ?? resolve(import.meta.dirname, '../../bin/outpost')
