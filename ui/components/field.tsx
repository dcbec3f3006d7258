import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'

interface FieldProps {
  readonly label: string
  readonly value: string
  readonly onInput: (value: string) => void
  readonly hint?: ComponentChildren
  readonly isSecret?: boolean
  /** `numeric` shows digits on a phone. */
  readonly inputMode?: 'text' | 'numeric'
  readonly placeholder?: string
  readonly autoComplete?: string
  /** Rows of a field with several lines. */
  readonly rows?: number
  readonly isRequired?: boolean
  /** Makes `/` move the focus here. */
  readonly isSearch?: boolean
  /** True to show the label to screen readers only. */
  readonly isLabelHidden?: boolean
  /** True for the field that has the focus when its dialog opens. */
  readonly isFirst?: boolean
}

/** Leaves a search for what it found, where the keys of the view apply. The arrow also selects the next row. */
function leaveSearch(event: KeyboardEvent & { readonly currentTarget: HTMLElement }): void {
  const { currentTarget, isComposing, key } = event
  const isEscape = key === 'Escape' && !currentTarget.closest('dialog')
  const isEnter = key === 'Enter' && !currentTarget.closest('form')
  if (isComposing || (!isEscape && !isEnter && key !== 'ArrowDown')) return
  if (key !== 'ArrowDown') event.preventDefault()
  currentTarget.blur()
}

/** A labelled text field. */
export function Field(props: FieldProps) {
  const { hint, inputMode, isLabelHidden, isRequired, isSearch, isSecret, label, onInput, rows, value } = props
  const id = useId()
  const common = {
    id,
    value,
    placeholder: props.placeholder,
    required: isRequired,
    autoComplete: props.autoComplete,
    spellcheck: false,
    autofocus: props.isFirst,
    'aria-describedby': hint === undefined ? undefined : `${id}-hint`,
    'data-search': isSearch ? '' : undefined,
    onKeyDown: isSearch ? leaveSearch : undefined,
  }
  return (
    <div class="field">
      <label for={id} class={isLabelHidden ? 'visually-hidden' : undefined}>
        {label}
      </label>
      {rows !== undefined ? (
        <textarea {...common} rows={rows} onInput={(event) => onInput(event.currentTarget.value)} />
      ) : isSecret ? (
        <input {...common} type="password" onInput={(event) => onInput(event.currentTarget.value)} />
      ) : (
        <input {...common} type="text" inputMode={inputMode} onInput={(event) => onInput(event.currentTarget.value)} />
      )}
      {hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
    </div>
  )
}
