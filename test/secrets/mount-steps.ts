/** What the processes of mount-crash.test.ts say, in this order. */
export const STEPS = ['enabled', 'filled', 'tuned', 'moved', 'disabled'] as const

export interface Said {
  readonly step: (typeof STEPS)[number]
  /** How many commits the whole took. */
  readonly commits?: number
}

/** Of the mount's data: more than go in one page. */
export const ENTRIES = 1200
