import type { Check } from './checks.ts'

const MARKS: Readonly<Record<Check['result'], string>> = {
  passed: '✓ passed',
  warning: '! warning',
  failed: '✗ failed',
  open: '? check it',
}

/** The checks before a change of roles, with their results. */
export function CheckList({ checks }: { readonly checks: readonly Check[] }) {
  return (
    <ol class="checks" aria-label="Checks">
      {checks.map(({ result, text, title }) => (
        <li key={title} class={`check-result check-${result}`}>
          <span class="check-mark">{MARKS[result]}</span>
          <span>
            <strong>{title}</strong>
            <br />
            {text}
          </span>
        </li>
      ))}
    </ol>
  )
}
