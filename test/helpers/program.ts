/**
 * The launcher of the program that tests start: of a bundle of the sources as they were when `scripts/test.ts` began, which
 * starts in half the time; the sources' own where a test file runs alone.
 */
import { resolve } from 'node:path'

export const OUTPOST = process.env['OUTPOST_TEST_PROGRAM'] ?? resolve(import.meta.dirname, '../../bin/outpost')
