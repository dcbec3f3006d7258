/** What the process around the core knows and the core is asked for. A core that stands alone, in a test, has none of it. */
export interface Surroundings {
  /** Where the process is reached, as a URL; empty while that is not known. */
  readonly apiAddress?: () => string
  /** Where other servers reach it; empty where there is no such place. */
  readonly clusterAddress?: () => string
  readonly metrics?: {
    /** The last complete interval. */
    json(): object
    /** For Prometheus, as of now; undefined where that form is switched off. */
    text(): Promise<string> | undefined
  }
  /** The configuration, without anything secret, under the names of the compatible system. */
  readonly settings?: () => Record<string, unknown>
  /** File systems of which operators want to know how full they are. */
  readonly directories?: readonly string[]
}
