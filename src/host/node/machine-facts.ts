/** What the worker of `fingerprint.ts` tells it. */

/** What only the worker finds out; an empty text is unknown. */
export interface MachineFacts {
  readonly cpuVendor: string
  readonly physicalCores: number
  readonly osTitle: string
  readonly machine: string
  readonly hypervisor: string
}

/** True for an answer of that shape. */
export function isMachineFacts(value: unknown): value is MachineFacts {
  if (typeof value !== 'object' || value === null) return false
  const texts = ['cpuVendor', 'osTitle', 'machine', 'hypervisor'] as const
  const fields: Partial<Record<string, unknown>> = { ...value }
  return typeof fields['physicalCores'] === 'number' && texts.every((name) => typeof fields[name] === 'string')
}
