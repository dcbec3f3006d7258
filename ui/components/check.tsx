import type { ComponentChildren } from 'preact'

interface CheckProps {
  readonly label: ComponentChildren
  readonly isChecked: boolean
  readonly set: (isChecked: boolean) => void
  /** Of a radio button: the name of its group, in which the arrow keys move. */
  readonly group?: string
}

/** A labelled check box, or a radio button of a group. */
export function Check({ group, isChecked, label, set }: CheckProps) {
  return (
    <label class="check">
      <input
        type={group === undefined ? 'checkbox' : 'radio'}
        name={group}
        checked={isChecked}
        onChange={(event) => set(event.currentTarget.checked)}
      />
      <span>{label}</span>
    </label>
  )
}
