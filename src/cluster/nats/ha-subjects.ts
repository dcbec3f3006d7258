/** Subjects, stream and bucket of high availability. Only servers may publish to the subjects (`permissions.ts`). */
export class HaSubjects {
  readonly #prefix: string
  readonly #region: string

  constructor(region: string) {
    this.#region = region
    this.#prefix = `outpost.${region}.ha`
  }

  get all(): string {
    return `${this.#prefix}.>`
  }

  /** Messages of the commit stream, from the active server. */
  get commits(): string {
    return `${this.#prefix}.commits`
  }

  /** The same messages once NATS has stored them (`republish`). */
  get stored(): string {
    return `${this.#prefix}.stored`
  }

  /** The lease may have changed. */
  get leaseChanged(): string {
    return `${this.#prefix}.changed`
  }

  /** State of the NATS servers, which the account of outpost imports. */
  get natsState(): string {
    return `${this.#prefix}.nats`
  }

  /** Request for the rows of the active server. */
  activeRows(serverId: string): string {
    return `${this.#prefix}.row.${serverId}`
  }

  /** Requests of a copy of entries, to the member that has them. */
  copy(serverId: string): string {
    return `${this.#prefix}.copy.${serverId}`
  }

  get commitStream(): string {
    return `OUTPOST_${this.#region}_COMMITS`
  }

  /** Key-value bucket with the lease and the members. */
  get bucket(): string {
    return `OUTPOST_${this.#region}_HA`
  }

  /** Subjects of the bucket's entries. */
  get bucketPrefix(): string {
    return `$KV.${this.bucket}.`
  }

  get bucketStream(): string {
    return `KV_${this.bucket}`
  }
}
