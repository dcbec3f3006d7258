/** What each view receives. */
export interface ViewProps {
  /** Decoded parameters of the path. */
  readonly params: Readonly<Record<string, string>>
}
